"""Values of which each worker has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import jax


@final
class PerWorkerValue:
    """A value for each worker (`tf.distribute.coordinator.PerWorkerValue`).

    A function given to `ClusterCoordinator.schedule` gets its worker's one.

    Args:
      values: one for each worker, in their order.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = tuple(values)

    def __repr__(self) -> str:
        """Counts the values."""
        return f"PerWorkerValue({len(self.values)} workers)"


@final
class PerWorkerDataset:
    """A dataset for each worker. `iter()` gives the iterators as a `PerWorkerValue`.

    Args:
      datasets: one for each worker.
      as_worker: makes the calling thread a worker for a block of code.
    """

    def __init__(
        self, datasets: Sequence[Any], as_worker: Callable[[int], AbstractContextManager[None]]
    ) -> None:
        self.values = tuple(datasets)
        self._as_worker = as_worker

    @property
    def element_spec(self) -> Any:
        """The shapes and types of the first worker's elements."""
        return self.values[0].element_spec

    def __iter__(self) -> Iterator[Any]:
        """Starts each worker's dataset. Give the result to `schedule`."""
        iterators = []
        for worker, dataset in enumerate(self.values):
            with self._as_worker(worker):
                iterators.append(iter(dataset))
        return PerWorkerIterator(iterators)

    def __repr__(self) -> str:
        """Counts the datasets."""
        return f"PerWorkerDataset({len(self.values)} workers)"


@final
class PerWorkerIterator(Iterator[Any]):
    """An iterator for each worker, to be given to `schedule`.

    Args:
      iterators: one for each worker.
    """

    def __init__(self, iterators: Sequence[Iterator[Any]]) -> None:
        self.values = tuple(iterators)

    def __next__(self) -> PerWorkerValue:
        """Takes an element from every worker's iterator.

        Raises:
          StopIteration: one of them came to its end.
        """
        return PerWorkerValue([next(iterator) for iterator in self.values])


def is_per_worker(value: Any) -> bool:
    """Says whether each worker gets a part of its own of a value."""
    return isinstance(value, PerWorkerValue | PerWorkerIterator | PerWorkerDataset)


def part_of(worker: int, nest: Any) -> Any:
    """Returns a nest with one worker's values in place of those of all."""
    return jax.tree.map(
        lambda leaf: leaf.values[worker] if is_per_worker(leaf) else leaf,
        nest,
        is_leaf=lambda leaf: not isinstance(leaf, dict | list | tuple),
    )
