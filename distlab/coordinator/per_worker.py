"""Values with one component for each worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, final

import jax
import numpy as np

from distlab.errors import ArgumentTypeError, StructureError, UnsupportedError
from distlab.text.shown import shown
from distlab.values.checks import function_name

numbers: Final = itertools.count()
"""The numbers of the datasets, iterators and functions that worker processes keep."""

_DATA: Final = (str, bytes, tuple, Mapping, np.ndarray, jax.Array)
"""One element, or its rows: no dataset of batches."""


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


class PerWorkerMade:
    """An object that each worker makes for itself: a thread keeps it here, a process by number."""

    def __init__(self, make: Callable[[Any], Any], source: Any) -> None:
        self.number = next(numbers)
        self.recipe = make, source
        self._made: dict[int, Any] = {}

    def of(self, worker: int) -> Any:
        """Returns the object of a worker that is the calling thread, made when first asked for."""
        if worker not in self._made:
            make, source = self.recipe
            own = source.of(worker) if isinstance(source, PerWorkerMade) else source
            self._made[worker] = make(own)
        return self._made[worker]

    def __repr__(self) -> str:
        """Names the kind."""
        return f"{type(self).__name__}(one in each worker)"


@final
class PerWorkerDataset(PerWorkerMade):
    """A dataset for each worker, whose `iter()` is an iterator for each worker."""

    def __init__(self, source: Any) -> None:
        if not callable(source):
            _require_dataset(source)
        super().__init__(_dataset_of, source)

    @property
    def element_spec(self) -> Any:
        """The shapes and types of the elements; the coordinator makes the dataset to see them."""
        make, source = self.recipe
        return make(source).element_spec

    def __iter__(self) -> Iterator[Any]:
        """Returns an iterator for each worker, as an argument for `schedule`."""
        return PerWorkerIterator(iter, self)


@final
class PerWorkerIterator(PerWorkerMade, Iterator[Any]):
    """An iterator for each worker, as an argument for `schedule`."""

    def __next__(self) -> NoReturn:
        """Refuses, as in TensorFlow: each worker reads its own iterator."""
        raise UnsupportedError(
            "A per-worker iterator is read by the workers, so next() can't be called on it here. "
            "Call it in a function that a worker runs: coordinator.schedule(fn, args=(iterator,))."
        )

    get_next = __next__


def require_for_workers(value: Any, workers: int) -> None:
    """Checks that a value, if it has parts for workers, has one for each."""
    if isinstance(value, PerWorkerValue) and len(value.values) != workers:
        raise StructureError(
            f"A PerWorkerValue has a part for each worker, but one of {len(value.values)} was "
            f"passed to a strategy of {workers}. Make it of as many values."
        )


def part_of(worker: int, nest: Any) -> Any:
    """Returns a nest with one worker's part of each per-worker value."""

    def own(leaf: Any) -> Any:
        if isinstance(leaf, PerWorkerValue):
            return leaf.values[worker]
        return leaf.of(worker) if isinstance(leaf, PerWorkerMade) else leaf

    return jax.tree.map(own, nest, is_leaf=lambda leaf: not isinstance(leaf, dict | list | tuple))


def _dataset_of(source: Any) -> Any:
    """Returns the dataset that a source is or makes."""
    if not callable(source):
        _require_dataset(source)
        return source
    made = source()
    if not _is_dataset(made):
        raise StructureError(
            f"{function_name(source)} must return a worker's dataset, an iterable of batches, but "
            f"returned {shown(made)}. Return a distlab.data.Dataset, or a distributed dataset."
        )
    return made


def _require_dataset(source: Any) -> None:
    """Checks that each worker can read a source from its beginning."""
    if not _is_dataset(source) or isinstance(source, Iterator):
        raise StructureError(
            "create_per_worker_dataset needs a dataset, of which each worker reads all, or a "
            f"function that returns one, got {shown(source)}. Pass a distlab.data.Dataset, or a "
            "function without arguments that makes it."
        )


def _is_dataset(made: Any) -> bool:
    return isinstance(made, Iterable) and not isinstance(made, _DATA)
