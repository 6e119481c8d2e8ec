"""The verbs of `Dataset` that carry something from element to element."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from distlab.data.plan.arguments import function, no_end, seed_of, truth
from distlab.data.plan.iterator import Elements
from distlab.data.plan.plan import INFINITE_CARDINALITY
from distlab.data.transforms.ignore_errors import IgnoreErrors
from distlab.data.transforms.resample import RejectionResample, shares
from distlab.data.transforms.scan import Scan, Start, fold
from distlab.data.transforms.take_while import TakeWhile
from distlab.data.transforms.unique import Unique
from distlab.data.verbs.planned import DatasetT, Planned
from distlab.errors import InvalidArgumentError, UnsupportedError


class StateVerbs(Planned[DatasetT]):
    """The verbs that carry something from element to element."""

    def reduce(
        self, initial_state: Any, reduce_func: Callable[[Any, Any], Any], name: str | None = None
    ) -> Any:
        """Reads all elements and folds them into one value.

        Args:
          initial_state: The first state, a nest of values.
          reduce_func: A function of the state and an element; returns the next state, of
            the same structure and dtypes. Each is one argument, also where it is a tuple.
          name: A name of the operation, for errors of its function.

        Returns:
          The last state, a nest of NumPy values.

        Raises:
          InvalidArgumentError: `reduce_func` is not callable, or the dataset has no end.
          StructureError: It changes the state's structure.
          ValueShapeError: It changes a dtype.

        Example:
          >>> import distlab as dl
          >>> int(dl.data.Dataset.range(5).reduce(0, lambda total, x: total + x))
          10
          >>> def longest(state, word):
          ...     return max(state, word, key=len)
          >>> dl.data.Dataset.from_tensor_slices(["a", "ccc", "bb"]).reduce("", longest)
          b'ccc'
        """
        fold_with = function("reduce", reduce_func, name)
        if self.plan.cardinality == INFINITE_CARDINALITY:
            raise no_end("reduce")
        with contextlib.closing(Elements(self.plan)) as elements:
            return fold(elements, initial_state, fold_with)

    def scan(
        self, initial_state: Any, scan_func: Callable[[Any, Any], Any], name: str | None = None
    ) -> DatasetT:
        """Applies a function that carries a state from element to element.

        Args:
          initial_state: The first state, a nest of values.
          scan_func: A function of the state and an element; returns the pair of the next
            state, of the same structure and dtypes, and an output.
          name: A name of the operation, for errors of its function.

        Returns:
          A dataset of the outputs.

        Raises:
          InvalidArgumentError: `scan_func` is not callable.
          StructureError: NumPy can't convert the first state. During iteration, the function
            does not return a pair, or changes the state's structure.
          ValueShapeError: During iteration, it changes a dtype.

        Example:
          >>> import distlab as dl
          >>> numbers = dl.data.Dataset.range(1, 6)
          >>> print(*numbers.scan(0, lambda total, x: (total + x, total + x)))
          1 3 6 10 15
        """
        scan_with = function("scan", scan_func, name)
        return self.with_plan(Scan(self.plan, Start.of(initial_state), scan_with))

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> DatasetT:
        """Ends the dataset at the first element for which a predicate does not hold.

        Args:
          predicate: A function with the arguments of `map`'s; returns one truth value.
          name: A name of the operation, for errors of its function.

        Returns:
          A dataset of the elements before it.

        Raises:
          InvalidArgumentError: `predicate` is not callable.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.range(10).take_while(lambda x: x < 3))
          0 1 2
        """
        return self.with_plan(TakeWhile(self.plan, function("take_while", predicate, name)))

    def unique(self, name: str | None = None) -> DatasetT:
        """Keeps the first of equal elements.

        Args:
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of different elements, which are kept in memory during iteration.

        Example:
          >>> import distlab as dl
          >>> print(*dl.data.Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique())
          1 37 2
        """
        del name
        return self.with_plan(Unique(self.plan))

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> DatasetT:
        """Leaves out the elements whose computation raises an error.

        Args:
          log_warning: Whether the logger `distlab` tells of each.
          name: Ignored; accepted for compatibility with tf.data.

        Returns:
          A dataset of the other elements.

        Raises:
          Exception: During iteration, the input raises an error again instead of going
            on.

        Example:
          >>> import distlab as dl
          >>> numbers = dl.data.Dataset.from_tensor_slices(["1", "two", "3"])
          >>> print(*numbers.map(int).ignore_errors())
          1 3
        """
        del name
        return self.with_plan(
            IgnoreErrors(self.plan, truth("ignore_errors", "log_warning", log_warning))
        )

    def get_single_element(self, name: str | None = None) -> Any:
        """Returns the only element.

        Args:
          name: Ignored; accepted for compatibility with tf.data.

        Raises:
          InvalidArgumentError: The dataset has no element, or several.

        Example:
          >>> import distlab as dl
          >>> print(dl.data.Dataset.range(3).batch(3).get_single_element())
          [0 1 2]
        """
        del name
        with contextlib.closing(Elements(self.plan)) as elements:
            found = [element.value for _, element in zip(range(2), elements, strict=False)]
        if len(found) != 1:
            raise InvalidArgumentError(
                "get_single_element needs a dataset of one element, and this one has "
                f"{'more' if found else 'none'}. Use take(1), or batch(n) with n elements."
            )
        return found[0]

    def fingerprint(self) -> Any:
        """Raises an error: a dataset with Python functions has no fingerprint.

        Raises:
          UnsupportedError: Always; it names what to use instead.

        Example:
          >>> import distlab as dl
          >>> try:
          ...     dl.data.Dataset.range(4).fingerprint()
          ... except dl.errors.UnsupportedError as error:
          ...     print(error)
          Python functions can't be compared by a fingerprint. Compare the code, or saved elements.
        """
        raise UnsupportedError(
            "Python functions can't be compared by a fingerprint. Compare the code, or saved "
            "elements."
        )

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> DatasetT:
        """Drops elements at random, so that classes have the shares that are wanted.

        Args:
          class_func: A function with the arguments of `map`'s; returns the number of an
            element's class.
          target_dist: The share that each class is to have.
          initial_dist: The share that each class has. None counts them during iteration.
          seed: The same seed makes the same choices in every iteration and process.
            None makes others in each iteration.
          name: A name of the operation, for errors of its function.

        Returns:
          A dataset of pairs `(class, element)`.

        Raises:
          InvalidArgumentError: The shares are not numbers with the sum 1, one for each
            class. During iteration, `class_func` returns another number.

        Example:
          >>> import distlab as dl
          >>> numbers = dl.data.Dataset.range(1000)  # a tenth is divisible by ten
          >>> balanced = numbers.rejection_resample(lambda x: x % 10 == 0, [0.5, 0.5], [0.9, 0.1])
          >>> 150 < len(list(balanced)) < 250
          True
        """
        class_of = function("rejection_resample", class_func, name)
        target = shares("target_dist", target_dist)
        initial = None if initial_dist is None else shares("initial_dist", initial_dist)
        if initial is not None and initial.shape != target.shape:
            raise InvalidArgumentError(
                "initial_dist of rejection_resample must have a share for each of the "
                f"{len(target)} classes in target_dist, got {len(initial)}."
            )
        number = seed_of("rejection_resample", seed)
        return self.with_plan(
            RejectionResample(
                self.plan, class_of, target, initial, seed=number, reshuffle=seed is None
            )
        )
