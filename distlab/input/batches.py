"""Batches of the replicas, step by step, in host memory: global ones divided, or one each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, final

import jax
import numpy as np

from distlab.data import INFINITE_CARDINALITY, Dataset, Element
from distlab.data.plan.engine import Pass, State
from distlab.data.plan.memory import own
from distlab.data.plan.plan import walk
from distlab.data.plan.spec import refuse_dataset
from distlab.data.sharding.worker_batches import global_batch_size, has_fixed_shapes
from distlab.data.transforms.batch import Batch, Rebatch
from distlab.data.transforms.padded_batch import PaddedBatch
from distlab.errors import InvalidArgumentError, NotBatchedError, StructureError, ValueShapeError
from distlab.input.spec import divided_spec, varying_spec
from distlab.text.shown import shown

Parts: TypeAlias = Sequence[Any] | np.ndarray
"""One component of a batch: an array (or `bytes`) for each replica, or one `(replicas, ...)`."""

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
"""The shape of one component on each replica of all processes."""


class Step(NamedTuple):
    """The input of this process's replicas in one step: the parts of each component.

    `sizes` are the numbers of examples, `indices` their positions in the source; `shapes` are on
    the replicas of all processes, None where this one has all. Incomplete: some are empty.
    """

    structure: Any
    columns: Sequence[Parts]
    sizes: list[int]
    indices: np.ndarray | None
    complete: bool = True
    shapes: Sequence[Shapes] | None = None

    @property
    def bytes(self) -> int:
        """The bytes of all parts."""
        return sum(map(_bytes, self.columns))


class Batches(ABC):
    """The source of a distributed dataset's steps, which can be read repeatedly.

    `nominal` is the first replica's part of a full batch. One that `fills` returns a last step in
    which some replicas have empty batches. `rereadable` is by this process alone.
    """

    policy: Literal["rebatch", "per_replica"]
    nominal: int | None
    fills: bool
    least_ahead: int = 0
    rereadable: bool = False

    @abstractmethod
    def open(self) -> Pass:
        """Starts a pass."""

    @property
    @abstractmethod
    def local_spec(self) -> Any:
        """The nest of specs of one replica's part."""

    @property
    @abstractmethod
    def endless(self) -> bool:
        """True if the data is known to have no end."""

    @abstractmethod
    def __len__(self) -> int:
        """Returns the number of steps."""


def flattened(value: Any) -> tuple[list[Any], Any]:
    """Returns the leaves and the pytree structure of an element; mappings become dicts."""
    leaves, structure = jax.tree.flatten(value)
    for leaf in leaves:
        refuse_dataset("Distributing a dataset", leaf)
    if any(isinstance(leaf, Mapping) for leaf in leaves):
        leaves, structure = jax.tree.flatten(_with_dicts(value))
    return leaves, structure


def full_batch(dataset: Dataset) -> int | None:
    """Returns the size of full batches from the dataset's plan, without reading the data."""
    if isinstance(dataset.plan, Rebatch):
        return max(dataset.plan.sizes)
    batches = (Batch, PaddedBatch, Rebatch)
    if not any(isinstance(node, batches) for node in walk(dataset.plan)):
        return None
    return global_batch_size(dataset.plan)


def _bytes(column: Parts) -> int:
    if isinstance(column, np.ndarray):
        return column.nbytes
    return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in column)


def _with_dicts(value: Any) -> Any:
    return jax.tree.map(
        lambda leaf: (
            {key: _with_dicts(part) for key, part in leaf.items()}
            if isinstance(leaf, Mapping)
            else leaf
        ),
        value,
    )


@final
class GlobalBatches(Batches):
    """Steps of a dataset of global batches."""

    policy: Literal["rebatch"] = "rebatch"

    def __init__(
        self,
        dataset: Dataset,
        replicas: int,
        *,
        workers: int = 1,
        worker: int = 0,
    ) -> None:
        self._dataset = dataset
        self._replicas = replicas
        self._workers, self._worker = workers, worker
        self.fills = True
        self.rereadable = dataset.plan.rereadable
        size = full_batch(dataset)
        self.nominal = None if size is None else -(-size // replicas)
        # Without known specs the first batch shows it: the source may be read once alone.
        if replicas > 1 and dataset.plan.exact and not dataset.batched:
            raise NotBatchedError(
                "A distributed dataset divides global batches over the replicas, so every "
                "component of its elements needs a batch dimension, but the elements are "
                f"{dataset.element_spec}. Call .batch(global_batch_size) on the dataset first."
            )

    def open(self) -> Pass:
        """Starts a pass."""
        each = self._replicas // self._workers
        order = parts_of_replicas(self._workers, each)
        own = order[each * self._worker : each * (self._worker + 1)]
        return _GlobalBatchReader(self._dataset, order, own)

    @property
    def local_spec(self) -> Any:
        """The specs with the first dimension divided; unknown where a worker may have none."""
        spec = divided_spec(self._dataset.element_spec, self._replicas)
        return spec if self._workers == 1 or self.endless else varying_spec(spec)

    @property
    def endless(self) -> bool:
        """True if there are global batches without end."""
        return self._dataset.cardinality() == INFINITE_CARDINALITY

    def __len__(self) -> int:
        """Returns the number of global batches."""
        return len(self._dataset)

    def __repr__(self) -> str:
        """Names the dataset."""
        return repr(self._dataset)


@final
class _GlobalBatchReader(Pass):
    """Divides over the replicas of all workers, and keeps the parts of one."""

    def __init__(self, dataset: Dataset, order: list[int], own: list[int]) -> None:
        self._elements = dataset.elements()
        self._order, self._own = order, own

    def __next__(self) -> Step:
        element = next(self._elements)
        leaves, structure = flattened(element.value)
        leaves = [frozen(leaf) for leaf in leaves]
        if len(self._order) == 1:
            alone: list[Parts] = [[leaf] for leaf in leaves]
            return Step(structure, alone, [_examples(leaves)], element.indices)
        sizes = divided_sizes(_common_length(leaves), len(self._order))
        columns = [_cut(leaf, sizes) for leaf in leaves]
        if self._own == self._order:
            return Step(structure, columns, sizes, element.indices)
        return Step(
            structure,
            [[parts[number] for number in self._own] for parts in columns],
            [sizes[number] for number in self._own],
            self._own_indices(element.indices, sizes),
            shapes=[
                tuple((sizes[number], *np.shape(parts[0])[1:]) for number in self._order)
                for parts in columns
            ],
        )

    def get_state(self) -> State:
        return self._elements.state()

    def set_state(self, state: State) -> None:
        if "shuffles" not in state:
            raise InvalidArgumentError(
                "The position must be of an iterator that divides global batches, got "
                f"{shown(state)}. Restore it into an iterator made in the same way."
            )
        self._elements.restore(state)

    def close(self) -> None:
        self._elements.close()

    def _own_indices(self, indices: Any, sizes: list[int]) -> Any:
        if indices is None:
            return None
        stops = np.cumsum([0, *sizes])
        rows = len(indices) // stops[-1] if stops[-1] else 1
        return np.concatenate([indices[rows * stops[n] : rows * stops[n + 1]] for n in self._own])


def divided_sizes(batch: int, replicas: int) -> list[int]:
    """Divides a batch as `tf.distribute` does: ceil(batch / replicas) each, while there are any."""
    each = -(-batch // replicas)
    return [max(0, min(each, batch - replica * each)) for replica in range(replicas)]


def frozen(leaf: Any) -> Any:
    """Returns a read-only array, whose memory JAX may share."""
    return leaf if isinstance(leaf, bytes) else own(np.asarray(leaf))


def parts_of_replicas(workers: int, each: int) -> list[int]:
    """Returns the part of a global batch that each replica takes: dealt out to workers in turn."""
    return [worker + workers * replica for worker in range(workers) for replica in range(each)]


def _cut(leaf: np.ndarray, sizes: list[int]) -> Parts:
    if sizes[-1] == sizes[0]:
        return leaf.reshape(len(sizes), sizes[0], *leaf.shape[1:])
    parts, start = [], 0
    for size in sizes:
        parts.append(leaf[start : start + size])
        start += size
    return parts


def _common_length(leaves: list[Any]) -> int:
    shapes = [np.shape(leaf) for leaf in leaves]
    if not all(shapes):
        raise NotBatchedError(
            "A global batch is divided along its first dimension, but a component of this "
            f"element has none (shapes {shapes}). Call .batch(global_batch_size) first."
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueShapeError(
            "All components of a global batch must have the same first dimension, got "
            f"shapes {shapes}. Return as many rows in each."
        )
    return shapes[0][0] if shapes else 0


@final
class PerReplicaBatches(Batches):
    """Steps in which each replica receives one element, of one dataset in turn or of its own.

    `fills` None does as TensorFlow: False where all shapes are static or the data is infinite.
    """

    policy: Literal["per_replica"] = "per_replica"

    def __init__(
        self,
        datasets: Sequence[Dataset],
        replicas: int,
        *,
        local_spec: Callable[[], Any] | None = None,
        fills: bool | None = None,
    ) -> None:
        self._datasets = tuple(datasets)
        self._replicas = replicas
        self._local_spec = local_spec
        self.nominal = full_batch(self._datasets[0])
        self.rereadable = all(dataset.plan.rereadable for dataset in datasets)
        self.fills = self._may_be_incomplete() if fills is None else fills

    def open(self) -> Pass:
        """Starts a pass."""
        return _PerReplicaBatchReader(self._datasets, self._replicas)

    @property
    def local_spec(self) -> Any:
        """The specs of the datasets' elements."""
        return self._datasets[-1].element_spec if self._local_spec is None else self._local_spec()

    @property
    def endless(self) -> bool:
        """True if every replica (or, if it fills, any) has batches without end."""
        endless = [dataset.cardinality() == INFINITE_CARDINALITY for dataset in self._datasets]
        return any(endless) if self.fills else all(endless)

    def __len__(self) -> int:
        """Returns the number of steps in which every replica (or, if it fills, any) has a batch."""
        counts = [len(dataset) for dataset in self._datasets]
        if len(counts) == 1:
            whole, rest = divmod(counts[0], self._replicas)
            return whole + bool(rest and self.fills)
        return max(counts) if self.fills else min(counts)

    def _may_be_incomplete(self) -> bool:
        if self._datasets[0].cardinality() == INFINITE_CARDINALITY:
            return False
        return not has_fixed_shapes(self._datasets[-1].plan)

    def __repr__(self) -> str:
        """Names the datasets."""
        return ", ".join(map(repr, self._datasets))


@final
class _PerReplicaBatchReader(Pass):
    def __init__(self, datasets: tuple[Dataset, ...], replicas: int) -> None:
        self._sources = [dataset.elements() for dataset in datasets]
        self._ended = [False] * len(datasets)
        self._source_of = [replica % len(datasets) for replica in range(replicas)]

    def __next__(self) -> Step:
        elements = [self._next(source) for source in self._source_of]
        present = [element for element in elements if element is not None]
        if not present:
            raise StopIteration
        # Positions are those in one source; with several they would be ambiguous.
        alone = len(self._sources) == 1
        indices = [e.indices for e in present if alone and e.indices is not None]
        flat = [None if element is None else flattened(element.value) for element in elements]
        leaves, structure = next(each for each in flat if each is not None)
        others = {each[1] for each in flat if each is not None} - {structure}
        if others:
            raise StructureError(
                "The replicas' datasets must have elements of one structure, but one has "
                f"{structure} and another {others.pop()}. Return the same components for every "
                "replica."
            )
        empty = [_no_rows(leaf) for leaf in leaves]
        rows = [empty if each is None else list(map(frozen, each[0])) for each in flat]
        return Step(
            structure,
            list(zip(*rows, strict=True)),
            [0 if e is None else _examples(row) for e, row in zip(elements, rows, strict=True)],
            np.concatenate(indices) if len(indices) == len(present) else None,
            complete=len(present) == len(elements),
        )

    def get_state(self) -> State:
        return {
            "sources": [source.state() for source in self._sources],
            "ended": list(self._ended),
        }

    def set_state(self, state: State) -> None:
        if "sources" not in state or len(state["sources"]) != len(self._sources):
            raise InvalidArgumentError(
                f"The position must be of an iterator over {len(self._sources)} dataset(s) of "
                f"per-replica batches, got {shown(state)}. Restore it into an iterator made in the "
                "same way."
            )
        for source, position in zip(self._sources, state["sources"], strict=True):
            source.restore(position)
        self._ended = list(state["ended"])

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _next(self, source: int) -> Element | None:
        if self._ended[source]:
            return None
        element: Element | None = next(self._sources[source], None)
        self._ended[source] = element is None
        return element


def _no_rows(leaf: Any) -> Any:
    """Returns the component of an empty batch, from that of another replica."""
    if isinstance(leaf, bytes):
        return b""
    array = np.asarray(leaf)
    empty = array[:0] if array.ndim else np.zeros((), array.dtype)
    empty.flags.writeable = False
    return empty


def _examples(row: list[Any]) -> int:
    """Returns the number of examples of a batch; scalars are one example."""
    shapes = [np.shape(leaf) for leaf in row]
    return next((shape[0] for shape in shapes if shape), 1)
