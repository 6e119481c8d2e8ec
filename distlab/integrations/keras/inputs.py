"""Input: Keras' batches divided over the replicas, and distlab's datasets as Keras' input.

An epoch may begin in the middle: batches that an interrupted run has applied are passed over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, final

import jax
import numpy as np
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights
from keras.src.trainers.epoch_iterator import EpochIterator

from distlab.data import INFINITE_CARDINALITY, AutoShardPolicy, Dataset, Options, as_dataset
from distlab.errors import ArgumentValueError, CardinalityError, ContextError, UnsupportedError
from distlab.input.dataset import DistributedDataset
from distlab.integrations.keras.patching import Function, patch
from distlab.strategies.abstract import Strategy
from distlab.values.distributed import PerReplica


@final
class DatasetAdapter(DataAdapter):  # type: ignore[misc]
    """A dataset of distlab as Keras takes its input."""

    def __init__(
        self,
        dataset: Dataset | DistributedDataset,
        class_weight: dict[int, float] | None,
        steps_per_epoch: int | None,
    ) -> None:
        if isinstance(dataset, Dataset):
            if class_weight is not None:
                dataset = dataset.map(_weighted(class_weight))
            if steps_per_epoch is None and dataset.cardinality() == INFINITE_CARDINALITY:
                raise ArgumentValueError(
                    "The dataset has no end, so Keras has to know how many batches are an epoch: "
                    "pass steps_per_epoch to fit (validation_steps for validation data, steps to "
                    "evaluate and predict)."
                )
        elif class_weight is not None:
            raise UnsupportedError(
                "class_weight is for datasets that are not distributed yet: pass the dataset "
                "itself to fit, or have it return (x, y, sample_weight)."
            )
        self.dataset = dataset

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None when it is unknown."""
        try:
            return len(self.dataset)
        except (CardinalityError, TypeError):
            return None

    @property
    def batch_size(self) -> None:
        """Unknown."""

    @property
    def has_partial_batch(self) -> None:
        """Unknown."""

    @property
    def partial_batch_size(self) -> None:
        """Unknown."""

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Returns the batches."""
        if isinstance(self.dataset, DistributedDataset):
            raise ContextError(
                "A distributed dataset is input for a model that was made in the scope of its "
                "strategy, and this model was made in none. Make the model in strategy.scope(), "
                "or pass the dataset that was distributed."
            )
        return iter(self.dataset)

    get_jax_iterator = get_numpy_iterator


def _weighted(class_weight: dict[int, float]) -> Any:
    def with_weights(x: Any, y: Any) -> tuple[Any, Any, Any]:
        return x, y, class_weight_to_sample_weights(y, class_weight)

    return with_weights


@final
class DividedBatches:
    """The batches of one input, divided over the replicas; each `iter` begins an epoch."""

    def __init__(self, adapter: Any, strategy: Strategy) -> None:
        self._adapter = adapter
        self._replicas = strategy.num_replicas_in_sync
        self._host: _HostBatches | None = None
        source: Any
        if isinstance(adapter, DatasetAdapter):
            source = adapter.dataset
        else:
            source = self._host = _HostBatches(adapter)
            if strategy.mesh.shared:
                source = _divided_by_data(as_dataset(source))
        if not isinstance(source, DistributedDataset):
            source = strategy.experimental_distribute_dataset(source)
        self._dataset: DistributedDataset = source

    def spec(self) -> Any:
        """Returns the shapes and dtypes of the first replica's part of a batch."""
        if getattr(self._adapter, "dataset", None) is self._dataset:  # distributed by the user
            part = _first(self._dataset)
            return jax.tree.map(_part_spec, part, is_leaf=_is_per_replica)
        return jax.tree.map(self._divided_spec, _first(self._adapter.get_numpy_iterator()))

    def _divided_spec(self, leaf: Any) -> jax.ShapeDtypeStruct:
        length, *rest = np.shape(leaf) or (self._replicas,)
        part = -(-length // self._replicas)
        dtype = jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)  # of which JAX warns
        return jax.ShapeDtypeStruct((part, *rest), dtype)

    def __iter__(self) -> Iterator[Any]:
        """Returns batches; over a dataset of distlab their position can be saved."""
        if self._host is None:
            return iter(self._dataset)
        return map(self._host.packed, self._dataset)


@final
class _HostBatches:
    """Keras' batches as tuples of arrays, whatever nests they are."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._structures: deque[Any] = deque()

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        self._structures.clear()
        for batch in self._adapter.get_numpy_iterator():
            leaves, structure = jax.tree.flatten(batch)
            self._structures.append(structure)
            yield tuple(leaves)

    def packed(self, leaves: tuple[Any, ...]) -> Any:
        """Returns the next batch as the nest that Keras made."""
        return jax.tree.unflatten(self._structures.popleft(), leaves)


@final
class SingleBatches:
    """Batches that are passed one by one, as to `train_on_batch`."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._waiting: deque[tuple[Any, ...]] = deque()
        self._divided: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while True:
            yield self._waiting.popleft()

    def divided(self, batch: Any) -> Any:
        """Returns a batch divided over the replicas."""
        leaves, structure = jax.tree.flatten(batch)
        arrays = tuple(np.asarray(leaf) for leaf in leaves)
        if self._strategy.mesh.shared:  # by workers, whose datasets are read ahead
            source = _divided_by_data(Dataset.from_tensors(arrays))
            divided = next(iter(self._strategy.experimental_distribute_dataset(source)))
            return jax.tree.unflatten(structure, divided)
        if self._divided is None:
            self._divided = iter(self._strategy.experimental_distribute_dataset(self))
        self._waiting.append(arrays)
        try:
            return jax.tree.unflatten(structure, next(self._divided))
        except BaseException:
            self._divided = None  # an iterator that raised has ended
            self._waiting.clear()
            raise


def _divided_by_data(dataset: Dataset) -> Dataset:
    """Returns a dataset of which all workers read the same batches, and each keeps its part."""
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    return dataset.with_options(options)


def is_divided(batch: Any) -> bool:
    """Returns whether a batch has been divided over replicas."""
    return any(map(_is_per_replica, jax.tree.leaves(batch, is_leaf=_is_per_replica)))


def sizes_of(batch: Any, replicas: int) -> tuple[int, ...]:
    """Returns the number of each replica's examples in a batch."""
    first = jax.tree.leaves(batch, is_leaf=_is_per_replica)[0]
    if not _is_per_replica(first):
        return (first.shape[0] if first.shape else 1,) * replicas
    if first.shapes is not None:
        return tuple(shape[0] for shape in first.shapes)
    return (first.stacked.shape[1],) * replicas


def _first(batches: Iterable[Any]) -> Any:
    """Returns the first batch, by which Keras builds a model."""
    for batch in batches:
        return batch
    raise ArgumentValueError(
        "The data for Keras must have an example or more, got none. Pass other data: look at "
        "what selects the examples, such as filter, take and drop_remainder."
    )


def _is_per_replica(value: Any) -> bool:
    return isinstance(value, PerReplica)


def _part_spec(part: Any) -> jax.ShapeDtypeStruct:
    if not isinstance(part, PerReplica):
        return jax.ShapeDtypeStruct(part.shape, part.dtype)
    shape = part.stacked.shape[1:] if part.shapes is None else part.shapes[0]
    return jax.ShapeDtypeStruct(shape, part.stacked.dtype)


class Start(NamedTuple):
    """The beginning of the next epoch, after batches that were applied."""

    batch: int
    position: Any = None
    """The position of the input's iterator; None where the batches must be read again."""


class Reading(NamedTuple):
    """The input that Keras reads."""

    iterator: Any
    goes_on: bool
    """True if the next epoch goes on with it: `fit` was given `steps_per_epoch`."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.start: Start | None = None
        self.reading = Reading(None, False)


reads = _Thread()


def patch_epochs() -> None:
    """Lets an epoch begin in the middle, with Keras' own count of its steps."""

    @patch(EpochIterator, "_enumerate_iterator")
    def _enumerate_iterator(old: Function, self: Any) -> Iterator[Any]:
        start, reads.start = reads.start, None
        for begin, end, iterator in old(self):
            if start is not None and start.position is not None and begin == 0:
                iterator.set_state(start.position)
            if start is not None and begin < start.batch:
                if start.position is None:
                    for _ in range(self.steps_per_execution):
                        next(iterator, None)
                continue
            reads.reading = Reading(iterator, self.steps_per_epoch is not None)
            yield begin, end, iterator
