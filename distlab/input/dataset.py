"""A dataset whose batches are divided over a strategy's replicas."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, final

from distlab.errors import ArgumentTypeError
from distlab.input._distribution import Distribution
from distlab.input._preview import Previewer
from distlab.input._step import Steps
from distlab.input.host import InputHost
from distlab.input.iterator import DistributedIterator
from distlab.input.options import InputOptions

_numbers = itertools.count()


@final
class DistributedDataset:
    """Gives each replica its part of the input, step by step.

    Get one from `strategy.experimental_distribute_dataset` or
    `strategy.distribute_datasets_from_function`. Each `iter()` starts from the
    beginning.

    Args:
      steps: Where its steps come from.
      strategy: The strategy whose replicas it feeds.
      options: How it was distributed.

    Attributes:
      steps: Where its steps come from.
      strategy: The strategy whose replicas it feeds.
    """

    def __init__(self, steps: Steps, strategy: InputHost, options: InputOptions) -> None:
        number = next(_numbers)
        self.steps = steps
        self.strategy = strategy
        self._distribution = Distribution(number, steps, strategy, options, Previewer(number))
        self._epochs = itertools.count()

    def __iter__(self) -> DistributedIterator:
        """Starts an epoch."""
        return DistributedIterator(self._distribution, next(self._epochs))

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Folds the elements of an epoch into one value (`DistributedDataset.reduce`).

        Args:
          initial_state: the value to begin with.
          reduce_func: takes the value so far and an element, returns the next
            value. It is ordinary Python in cross-replica context, so it may
            call `strategy.run`.

        Returns:
          The last value.

        Raises:
          ArgumentTypeError: `reduce_func` is no function.
        """
        if not callable(reduce_func):
            raise ArgumentTypeError(
                "reduce_func must be a function of the value so far and an element, got "
                f"{reduce_func!r:.80}."
            )
        return functools.reduce(reduce_func, self, initial_state)

    @property
    def element_spec(self) -> Any:
        """The nest of `PerReplicaSpec` of its elements; with one replica, plain specs.

        A first dimension is None where replicas may get different numbers of
        examples.
        """
        return self._distribution.element_spec

    def __len__(self) -> int:
        """How many steps an epoch has, where the dataset knows.

        Raises:
          CardinalityError: the number is not known, or there is no end.
        """
        return len(self.steps)

    def __bool__(self) -> bool:
        """Is true, whatever the length."""
        return True

    def _repr_html_(self) -> str:
        """Shows in notebooks what each replica gets."""
        from distlab.values.reprs import dataset_html

        return dataset_html(self)

    def __repr__(self) -> str:
        """Names what is divided over how many replicas."""
        return f"DistributedDataset({self.steps!r}, {self.strategy!r})"
