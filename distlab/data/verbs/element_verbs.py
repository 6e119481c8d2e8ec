"""The verbs of `Dataset` that call a function of each element, or change elements."""

# ruff: noqa: ARG002 - tf.data's parameters

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from distlab.data.plan.arguments import checked, function, integer, no_end
from distlab.data.plan.iterator import Elements
from distlab.data.plan.plan import INFINITE_CARDINALITY
from distlab.data.transforms.batch import Batch, Rebatch, Unbatch
from distlab.data.transforms.elements import Enumerate, Filter, Map, TakeWhile, fold
from distlab.data.transforms.interleave import Interleave, plan_maker
from distlab.data.verbs.planned import DatasetT, Planned
from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown


class ElementVerbs(Planned[DatasetT]):
    """The verbs that call a function of each element, or change elements."""

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> DatasetT:
        """Stacks elements into batches.

        Args:
          batch_size: The number of examples in a batch.
          drop_remainder: Whether to drop a last batch with fewer.
          num_parallel_calls: Ignored; a batch of arrays is one operation here.
          deterministic: Ignored; the order is always kept.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset whose components have a new first dimension.

        Raises:
          InvalidArgumentError: `batch_size` is less than 1. During iteration, elements
            of one batch have different shapes.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(5).batch(2))
          [0 1] [2 3] [4]
        """
        size, drop = checked("batch", batch_size=batch_size, drop_remainder=drop_remainder)
        return self.with_plan(Batch(self.plan, size, drop))

    def unbatch(self, name: str | None = None) -> DatasetT:
        """Splits each element into its rows.

        Args:
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset whose components have lost their first dimension.

        Raises:
          NotBatchedError: During iteration, a component has no first dimension.
          InvalidArgumentError: During iteration, first dimensions differ.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(5).batch(2).unbatch())
          0 1 2 3 4
        """
        return self.with_plan(Unbatch(self.plan))

    def rebatch(
        self,
        batch_size: int | Sequence[int],
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> DatasetT:
        """Changes the size of batches.

        Args:
          batch_size: The number of examples in a batch, or several sizes to cycle through.
          drop_remainder: Whether to drop a last batch with fewer.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the same rows in the same order.

        Raises:
          InvalidArgumentError: A size is negative, or no size is positive.

        Example:
          >>> import distlab as dl
          >>> batches = dl.data.Dataset.range(7).batch(3)
          >>> print(*batches.rebatch([2, 1]))
          [0 1] [2] [3 4] [5] [6]
        """
        given: Any = batch_size
        several = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        given = list(given) if several else [given]
        sizes = tuple(integer("rebatch", "batch_size", size, at_least=0) for size in given)
        if not any(sizes):
            raise InvalidArgumentError(
                f"batch_size of rebatch must have a positive size, got {shown(batch_size)}. Pass "
                "2, or [2, 1] for sizes in turn."
            )
        (drop,) = checked("rebatch", drop_remainder=drop_remainder)
        return self.with_plan(Rebatch(self.plan, sizes, drop))

    def map(  # noqa: PLR0917 - tf.data's signature
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool | None = None,
        name: str | None = None,
    ) -> DatasetT:
        """Applies a function to each element.

        Args:
          map_func: A function of NumPy values (read-only): the parts of a tuple are
            separate arguments, any other element is one argument. It returns a nest of
            values; Python numbers become float32 and int32. Arrays that it could change
            later are copied.
          num_parallel_calls: The number of threads that call the function, which gains
            where it reads files or computes outside of Python. `AUTOTUNE` uses one for
            each core once calls are seen to take long. None calls it in the thread that
            reads.
          deterministic: Ignored; the order is always kept.
          synchronous: Whether to call the function in the thread that reads, whatever
            `num_parallel_calls` says.
          use_unbounded_threadpool: Ignored; accepted for compatibility with tf.data.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the results.

        Raises:
          InvalidArgumentError: `map_func` is not callable, or `num_parallel_calls` is
            neither positive nor `AUTOTUNE`.

        Example:
          >>> import distlab as dl
          >>> pairs = dl.data.Dataset.from_tensor_slices(([1, 2], [10, 20]))
          >>> print(*pairs.map(lambda a, b: a + b))
          11 22
        """
        alone, threads = checked(
            "map", synchronous=synchronous, num_parallel_calls=num_parallel_calls
        )
        call = function("map", map_func)
        return self.with_plan(Map(self.plan, call, None if alone else threads))

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> DatasetT:
        """Keeps the elements for which a predicate holds.

        Args:
          predicate: A function with the arguments of `map`'s; returns one truth value.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of some of the elements, of unknown cardinality.

        Raises:
          InvalidArgumentError: `predicate` is not callable.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(6).filter(lambda x: x % 2 == 0))
          0 2 4
        """
        return self.with_plan(Filter(self.plan, function("filter", predicate)))

    def enumerate(self, start: int = 0, name: str | None = None) -> DatasetT:
        """Pairs elements with their number.

        Args:
          start: The first number.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of `(number, element)`, with int64 numbers.

        Raises:
          InvalidArgumentError: `start` is not an integer.

        Example:
          >>> import distlab as dl
          >>> for number, word in dl.data.Dataset.from_tensor_slices(["a", "b"]).enumerate(start=1):
          ...     print(number, word)
          1 b'a'
          2 b'b'
        """
        return self.with_plan(Enumerate(self.plan, *checked("enumerate", start=start)))

    def flat_map(self, map_func: Callable[..., DatasetT], name: str | None = None) -> DatasetT:
        """Makes a dataset from each element and concatenates these datasets.

        Args:
          map_func: A function with the arguments of `map`'s; returns a `Dataset`.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the elements of all of them.

        Raises:
          InvalidArgumentError: `map_func` is not callable.
          StructureError: During iteration, `map_func` does not return a `Dataset`.

        Example:
          >>> import distlab as dl
          >>> numbers = dl.data.Dataset.range(4)
          >>> print(*numbers.flat_map(lambda n: dl.data.Dataset.range(n)))
          0 0 1 0 1 2
        """
        make = plan_maker("flat_map", function("flat_map", map_func))
        return self.with_plan(Interleave(self.plan, make, 1, 1, None))

    def interleave(  # noqa: PLR0917 - tf.data's signature
        self,
        map_func: Callable[..., DatasetT],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> DatasetT:
        """Makes a dataset from each element and reads several of them in turns.

        Args:
          map_func: A function with the arguments of `map`'s; returns a `Dataset`.
          cycle_length: The number of datasets that are open at a time. None or
            `AUTOTUNE` means one for each core, as in tf.data.
          block_length: The number of consecutive elements from one dataset. None means 1.
          num_parallel_calls: The number of datasets, of those that are open, that
            threads read ahead. `AUTOTUNE` reads all of them ahead once reading is seen to
            take long. None reads none ahead.
          deterministic: Ignored; the order is always the same.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the elements of all of them.

        Raises:
          InvalidArgumentError: `map_func` is not callable, or a length is less than 1.
          StructureError: During iteration, `map_func` does not return a `Dataset`.

        Example:
          >>> import distlab as dl
          >>> def three(n):
          ...     return dl.data.Dataset.from_tensors(n).repeat(3)
          >>> print(*dl.data.Dataset.range(3).interleave(three, cycle_length=2, block_length=2))
          0 0 1 1 0 1 2 2 2
        """
        make = plan_maker("interleave", function("interleave", map_func))
        cycle, block, ahead = checked(
            "interleave",
            cycle_length=cycle_length,
            block_length=block_length,
            num_parallel_calls=num_parallel_calls,
        )
        if cycle in {None, -1}:
            cycle = os.cpu_count() or 1
        return self.with_plan(Interleave(self.plan, make, cycle, block or 1, ahead))

    def reduce(
        self, initial_state: Any, reduce_func: Callable[[Any, Any], Any], name: str | None = None
    ) -> Any:
        """Reads all elements and folds them into one value.

        Args:
          initial_state: The first state, a nest of values.
          reduce_func: A function of the state and an element; returns the next state. Each
            is one argument, also where it is a tuple.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          The last state, a nest of NumPy values.

        Raises:
          InvalidArgumentError: `reduce_func` is not callable, or the dataset has no end.

        Example:
          >>> import distlab as dl
          >>> int(dl.data.Dataset.range(5).reduce(0, lambda total, x: total + x))
          10
          >>> def longest(state, word):
          ...     return max(state, word, key=len)
          >>> dl.data.Dataset.from_tensor_slices(["a", "ccc", "bb"]).reduce("", longest)
          b'ccc'
        """
        fold_with = function("reduce", reduce_func)
        if self.plan.cardinality == INFINITE_CARDINALITY:
            raise no_end("reduce")
        with contextlib.closing(Elements(self.plan)) as elements:
            return fold(elements, initial_state, fold_with)

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> DatasetT:
        """Ends the dataset at the first element for which a predicate does not hold.

        Args:
          predicate: A function with the arguments of `map`'s; returns one truth value.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the elements before it.

        Raises:
          InvalidArgumentError: `predicate` is not callable.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(10).take_while(lambda x: x < 3))
          0 1 2
        """
        return self.with_plan(TakeWhile(self.plan, function("take_while", predicate)))
