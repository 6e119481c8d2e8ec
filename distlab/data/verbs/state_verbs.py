"""The verbs of `Dataset` that carry something from element to element."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from distlab.data.plan.arguments import function, no_end
from distlab.data.plan.iterator import Elements
from distlab.data.plan.plan import INFINITE_CARDINALITY
from distlab.data.transforms.elements import TakeWhile, fold
from distlab.data.verbs.planned import DatasetT, Planned


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
