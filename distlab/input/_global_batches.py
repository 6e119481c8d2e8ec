"""Steps in which a global batch is divided over the replicas."""

from __future__ import annotations

from typing import Any, Literal, final

import numpy as np

from distlab.data import INFINITE_CARDINALITY, Dataset
from distlab.data.plan.engine import State
from distlab.errors import InvalidArgumentError, NotBatchedError, ValueShapeError
from distlab.input import split
from distlab.input._assemble import frozen
from distlab.input._steps import Parts, Reader, Step, Steps, flattened, full_batch
from distlab.input.spec import divided_spec, varying_spec
from distlab.text.shown import shown


@final
class GlobalBatches(Steps):
    """Steps of a dataset of global batches.

    Args:
      dataset: The global batches; with one replica, any elements.
      replicas: The number of replicas over which each batch is divided, on all workers.
      may_read: Whether an element may be read to learn the specs. False for data that
        can be read once, or at a cost.
      workers: The number of workers, to whom the parts are dealt out in turn.
      worker: The number of this one, whose replicas read the steps.
    """

    policy: Literal["rebatch"] = "rebatch"

    def __init__(
        self,
        dataset: Dataset,
        replicas: int,
        *,
        may_read: bool,
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
        if may_read and replicas > 1 and not dataset.batched:
            raise NotBatchedError(
                "A distributed dataset divides global batches over the replicas, so every "
                "component of its elements needs a batch dimension, but the elements are "
                f"{dataset.element_spec}. Call .batch(global_batch_size) on the dataset first."
            )

    def open(self) -> Reader:
        """Starts a pass."""
        if self._workers > 1:
            order = parts_of_replicas(self._workers, self._replicas // self._workers)
            return _WorkerReader(self._dataset, order, self._workers, self._worker)
        return _GlobalBatchReader(self._dataset, self._replicas)

    @property
    def local_spec(self) -> Any:
        """The global batch's specs with the first dimension divided.

        It is unknown where a worker may have no batch while another one has.
        """
        spec = divided_spec(self._dataset.element_spec, self._replicas)
        return spec if self._workers == 1 or self.endless else varying_spec(spec)

    @property
    def endless(self) -> bool:
        """Whether there are global batches without end."""
        return self._dataset.cardinality() == INFINITE_CARDINALITY

    def __len__(self) -> int:
        """Returns the number of global batches."""
        return len(self._dataset)

    def __repr__(self) -> str:
        """Names the dataset."""
        return repr(self._dataset)


@final
class _GlobalBatchReader(Reader):
    def __init__(self, dataset: Dataset, replicas: int) -> None:
        self._elements = dataset.elements()
        self._replicas = replicas

    def read(self) -> Step:
        element = next(self._elements)
        leaves, structure = flattened(element.value)
        leaves = [frozen(leaf) for leaf in leaves]
        if self._replicas == 1:
            sizes = [_first_length(leaves)]
            columns: list[Parts] = [[leaf] for leaf in leaves]
        else:
            sizes = split.sizes(_common_length(leaves), self._replicas)
            columns = [_cut(leaf, sizes) for leaf in leaves]
        return Step(structure, columns, sizes, element.indices)

    def state(self) -> State:
        return self._elements.state()

    def restore(self, state: State) -> None:
        if "shuffles" not in state:
            raise InvalidArgumentError(
                "The position must be of an iterator that divides global batches, got "
                f"{shown(state)}. Restore it into an iterator made in the same way."
            )
        self._elements.restore(state)

    def close(self) -> None:
        self._elements.close()


@final
class _WorkerReader(Reader):
    """Divides over the replicas of all workers, and keeps the parts of one.

    Args:
      dataset: The global batches.
      order: The number of the part that each replica of all workers takes.
      workers: The number of workers.
      worker: The number of this one.
    """

    def __init__(self, dataset: Dataset, order: list[int], workers: int, worker: int) -> None:
        self._whole = _GlobalBatchReader(dataset, len(order))
        self._order = order
        each = len(order) // workers
        self._own = order[each * worker : each * (worker + 1)]

    def read(self) -> Step:
        step = self._whole.read()
        indices = step.indices
        if indices is not None:
            stops = np.cumsum([0, *step.sizes])
            rows = len(indices) // stops[-1] if stops[-1] else 1
            own = [indices[rows * stops[n] : rows * stops[n + 1]] for n in self._own]
            indices = np.concatenate(own)
        return Step(
            step.structure,
            [[parts[number] for number in self._own] for parts in step.columns],
            [step.sizes[number] for number in self._own],
            indices,
            shapes=[
                tuple((step.sizes[number], *np.shape(parts[0])[1:]) for number in self._order)
                for parts in step.columns
            ],
        )

    def state(self) -> State:
        return self._whole.state()

    def restore(self, state: State) -> None:
        self._whole.restore(state)

    def close(self) -> None:
        self._whole.close()


def parts_of_replicas(workers: int, each: int) -> list[int]:
    """Returns which part of a global batch each replica takes, as in TensorFlow.

    The parts are dealt out to the workers in turn.
    """
    return [worker + workers * replica for worker in range(workers) for replica in range(each)]


def _cut(leaf: np.ndarray, sizes: list[int]) -> Parts:
    if sizes[-1] == sizes[0]:
        return leaf.reshape(len(sizes), sizes[0], *leaf.shape[1:])
    parts, start = [], 0
    for size in sizes:
        parts.append(leaf[start : start + size])
        start += size
    return parts


def _first_length(leaves: list[Any]) -> int:
    shape = np.shape(leaves[0]) if leaves else ()
    return shape[0] if shape else 1


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
