"""A dataset whose batches are divided over a strategy's replicas."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, final

import jax

from distlab import data
from distlab.data import Dataset
from distlab.errors import NotBatchedError
from distlab.input._preview import Previewer
from distlab.input.iterator import DistributedIterator

if TYPE_CHECKING:
    from distlab.strategies.abstract import Strategy

_numbers = itertools.count()


@final
class DistributedDataset:
    """Gives each replica its part of every global batch.

    Get one from `strategy.experimental_distribute_dataset`. Each `iter()`
    starts from the beginning.

    Attributes:
      number: its number in this process; events name it.
    """

    def __init__(self, dataset: Any, strategy: Strategy) -> None:
        self.number = next(_numbers)
        self._dataset: Dataset = (
            dataset if isinstance(dataset, Dataset) else data.as_dataset(dataset)
        )
        self._strategy = strategy
        self._epochs = itertools.count()
        self._previewer = Previewer(self.number)
        if strategy.num_replicas_in_sync > 1 and isinstance(dataset, Dataset):
            _require_batched(dataset)

    def __iter__(self) -> DistributedIterator:
        """Starts an epoch."""
        return DistributedIterator(
            self._dataset, self._strategy, self.number, next(self._epochs), self._previewer
        )

    def __len__(self) -> int:
        """How many global batches an epoch has, where the dataset knows.

        Raises:
          TypeError: the number is not known, or there is no end.
        """
        return len(self._dataset)

    def __repr__(self) -> str:
        """Names what is divided over how many replicas."""
        return f"DistributedDataset({self._dataset!r}, {self._strategy!r})"


def _require_batched(dataset: Dataset) -> None:
    if any(not spec.shape for spec in jax.tree.leaves(dataset.element_spec)):
        raise NotBatchedError(
            "A distributed dataset divides global batches over the replicas, so every component "
            f"of its elements needs a batch dimension, but the elements are "
            f"{dataset.element_spec}. "
            "Call .batch(global_batch_size) on the dataset first."
        )
