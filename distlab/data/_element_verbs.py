"""The verbs of `Dataset` that change elements."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from distlab.data._arguments import function, integer
from distlab.data._batch import Batch
from distlab.data._enumerate import Enumerate
from distlab.data._filter import Filter
from distlab.data._interleave import Interleave
from distlab.data._map import Map
from distlab.data._plan import Node
from distlab.data._rebatch import Rebatch
from distlab.data._unbatch import Unbatch
from distlab.errors import InvalidArgumentError, StructureError

if TYPE_CHECKING:
    from distlab.data._dataset import Dataset


class ElementVerbs(ABC):
    """What changes elements."""

    @property
    @abstractmethod
    def plan(self) -> Node:
        """What is read."""

    @abstractmethod
    def with_plan(self, plan: Node) -> Dataset:
        """Returns a dataset of another plan with the same options."""

    def batch(
        self, batch_size: int, drop_remainder: bool = False, num_parallel_calls: int | None = None
    ) -> Dataset:
        """Stacks elements into batches.

        Args:
          batch_size: examples in a batch.
          drop_remainder: whether to leave out a last batch with fewer.
          num_parallel_calls: taken for tf.data's sake; a batch of arrays is one
            operation here.

        Returns:
          A dataset whose components have a new first dimension.

        Raises:
          InvalidArgumentError: when `batch_size` is less than 1; while iterating,
            when elements of one batch have different shapes.
        """
        del num_parallel_calls
        size = integer("batch", "batch_size", batch_size, at_least=1)
        return self.with_plan(Batch(self.plan, size, bool(drop_remainder)))

    def unbatch(self) -> Dataset:
        """Makes an element of each row of each element.

        Returns:
          A dataset whose components have lost their first dimension.

        Raises:
          NotBatchedError: while iterating, when there is no first dimension.
          InvalidArgumentError: while iterating, when first dimensions differ.
        """
        return self.with_plan(Unbatch(self.plan))

    def rebatch(self, batch_size: int | Sequence[int], drop_remainder: bool = False) -> Dataset:
        """Cuts batches anew.

        Args:
          batch_size: examples in a batch, or several sizes that take turns.
          drop_remainder: whether to leave out a last batch with fewer.

        Returns:
          A dataset of the same rows in the same order.

        Raises:
          InvalidArgumentError: when a size is negative, or none is positive.
        """
        given = list(batch_size) if isinstance(batch_size, Sequence) else [batch_size]
        sizes = tuple(integer("rebatch", "batch_size", size, at_least=0) for size in given)
        if not any(sizes):
            raise InvalidArgumentError(
                f"batch_size of rebatch must have a positive size, got {batch_size!r}"
            )
        return self.with_plan(Rebatch(self.plan, sizes, bool(drop_remainder)))

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Applies a function to each element.

        Args:
          map_func: takes NumPy values (read-only): the parts of a tuple as
            separate arguments, anything else as one. Returns a nest of values;
            Python numbers become float32 and int32.
          num_parallel_calls: taken for tf.data's sake. The function runs in the
            thread that reads; `prefetch` moves that to another one.
          deterministic: taken for tf.data's sake; the order is always kept.

        Returns:
          A dataset of the results.

        Raises:
          InvalidArgumentError: when `map_func` can't be called.
        """
        del num_parallel_calls, deterministic
        return self.with_plan(Map(self.plan, function("map", map_func)))

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """Keeps the elements for which a predicate holds.

        Args:
          predicate: is called like the function of `map`; returns one truth value.

        Returns:
          A dataset of some of the elements, of unknown cardinality.

        Raises:
          InvalidArgumentError: when `predicate` can't be called.
        """
        return self.with_plan(Filter(self.plan, function("filter", predicate)))

    def enumerate(self, start: int = 0) -> Dataset:
        """Pairs elements with their number.

        Args:
          start: the first number.

        Returns:
          A dataset of `(number, element)`, numbers int64.

        Raises:
          InvalidArgumentError: when `start` is no integer.
        """
        return self.with_plan(Enumerate(self.plan, integer("enumerate", "start", start)))

    def flat_map(self, map_func: Callable[..., Dataset]) -> Dataset:
        """Makes a dataset of each element and reads one after the other.

        Args:
          map_func: is called like the function of `map`; returns a `Dataset`.

        Returns:
          A dataset of all their elements.

        Raises:
          InvalidArgumentError: when `map_func` can't be called.
          StructureError: while iterating, when it returns no `Dataset`.
        """
        make = _plan_maker(function("flat_map", map_func))
        return self.with_plan(Interleave(self.plan, make, 1, 1))

    def interleave(
        self,
        map_func: Callable[..., Dataset],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Makes a dataset of each element and reads several of them in turns.

        Args:
          map_func: is called like the function of `map`; returns a `Dataset`.
          cycle_length: how many are open at a time; None or `AUTOTUNE`: one for
            each core, as in tf.data.
          block_length: how many elements are taken of one before the next has
            its turn; None: 1.
          num_parallel_calls: taken for tf.data's sake, as in `map`.
          deterministic: taken for tf.data's sake; the order is always the same.

        Returns:
          A dataset of all their elements.

        Raises:
          InvalidArgumentError: when `map_func` can't be called, or a length is
            less than 1.
          StructureError: while iterating, when it returns no `Dataset`.
        """
        del num_parallel_calls, deterministic
        make = _plan_maker(function("interleave", map_func))
        cycle = os.cpu_count() or 1
        if cycle_length not in {None, -1}:
            cycle = integer("interleave", "cycle_length", cycle_length, at_least=1)
        block = 1
        if block_length is not None:
            block = integer("interleave", "block_length", block_length, at_least=1)
        return self.with_plan(Interleave(self.plan, make, cycle, block))


def _plan_maker(make_dataset: Callable[..., Dataset]) -> Callable[..., Node]:
    """Returns a function that gives the plan of the dataset made of an element."""

    def make(*parts: Any) -> Node:
        dataset = make_dataset(*parts)
        plan = getattr(dataset, "plan", None)
        if not isinstance(plan, Node):
            raise StructureError(
                "the function of flat_map and interleave must return a Dataset, got "
                f"{type(dataset).__name__}. Use map for other values."
            )
        return plan

    return make
