"""Values with one component for each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, final

import jax

from distlab.errors import ArgumentTypeError, StructureError, UnsupportedError
from distlab.text.shown import shown


@final
class PerWorkerValue:
    """A value for each worker (`tf.distribute.coordinator.PerWorkerValue`).

    A function that `ClusterCoordinator.schedule` runs receives its worker's value.

    Args:
      values: The workers' values, in worker order.

    Attributes:
      values: The workers' values, in worker order.

    Raises:
      ArgumentTypeError: `values` is no list.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2401"], "ps": ["b:2401"]})
      >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
      >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
      >>> coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
      >>> seeds = dl.coordinator.PerWorkerValue([17])
      >>> coordinator.schedule(lambda seed: seed + 1, (seeds,)).fetch()
      18
    """

    def __init__(self, values: Sequence[Any]) -> None:
        given: Any = values
        if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
            raise ArgumentTypeError(
                f"A PerWorkerValue needs a list of the workers' values, got {shown(given)}. Write "
                "PerWorkerValue([value] * strategy.num_workers) for the same on all."
            )
        self.values = tuple(values)

    def __repr__(self) -> str:
        """Returns the number of values."""
        return f"PerWorkerValue({len(self.values)} workers)"


@final
class PerWorkerDataset:
    """A dataset for each worker, whose `iter()` is an iterator for each worker."""

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
        """Returns an iterator for each worker, as an argument for `schedule`."""
        iterators = []
        for worker, dataset in enumerate(self.values):
            with self._as_worker(worker):
                iterators.append(iter(dataset))
        return PerWorkerIterator(iterators)

    def __repr__(self) -> str:
        """Returns the number of datasets."""
        return f"PerWorkerDataset({len(self.values)} workers)"


@final
class PerWorkerIterator(Iterator[Any]):
    """An iterator for each worker, as an argument for `schedule`."""

    def __init__(self, iterators: Sequence[Iterator[Any]]) -> None:
        self.values = tuple(iterators)

    def __next__(self) -> NoReturn:
        """Refuses, as in TensorFlow: each worker reads its own iterator."""
        refuse_next()

    get_next = __next__


def refuse_next() -> NoReturn:
    """Raises the error of an iterator that only workers read."""
    raise UnsupportedError(
        "A per-worker iterator is read by the workers, so next() can't be called on it here. "
        "Call it in a function that a worker runs: coordinator.schedule(fn, args=(iterator,))."
    )


def is_per_worker(value: Any) -> bool:
    """Returns whether a value has a part for each worker."""
    return isinstance(value, PerWorkerValue | PerWorkerIterator | PerWorkerDataset)


def require_for_workers(value: Any, workers: int) -> None:
    """Checks that a value, if it has parts for workers, has one for each."""
    if is_per_worker(value) and len(value.values) != workers:
        raise StructureError(
            f"A {type(value).__name__} has a part for each worker, but one of {len(value.values)} "
            f"was passed to a strategy of {workers}. Make it with this strategy's coordinator, or "
            "of as many values."
        )


def part_of(worker: int, nest: Any) -> Any:
    """Returns a nest with one worker's part of each per-worker value."""
    return jax.tree.map(
        lambda leaf: leaf.values[worker] if is_per_worker(leaf) else leaf,
        nest,
        is_leaf=lambda leaf: not isinstance(leaf, dict | list | tuple),
    )
