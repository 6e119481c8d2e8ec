"""A dataset whose batches are divided over a strategy's replicas."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from distlab.errors import ArgumentTypeError
from distlab.input._preview import Previewer
from distlab.input._step import Steps
from distlab.input.iterator import DistributedIterator
from distlab.input.options import InputOptions
from distlab.input.spec import per_replica_spec

if TYPE_CHECKING:
    from distlab.strategies.abstract import Strategy

_numbers = itertools.count()


@final
class DistributedDataset:
    """Gives each replica its part of the input, step by step.

    Get one from `strategy.experimental_distribute_dataset` or
    `strategy.distribute_datasets_from_function`. Each `iter()` starts from the
    beginning.

    Attributes:
      number: its number in this process; events name it.
      steps: where its steps come from.
      strategy: whose replicas it feeds.
      options: how it was distributed.
      previewer: shows its examples on the pages, each once.
    """

    def __init__(self, steps: Steps, strategy: Strategy, options: InputOptions) -> None:
        self.number = next(_numbers)
        self.steps = steps
        self.strategy = strategy
        self.options = options
        self.previewer = Previewer(self.number)
        self._epochs = itertools.count()

    def __iter__(self) -> DistributedIterator:
        """Starts an epoch."""
        return DistributedIterator(self, next(self._epochs))

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
        return per_replica_spec(self.steps.local_spec, self.strategy.mesh.size)

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
