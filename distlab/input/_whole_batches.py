"""Global batches, each divided over the replicas."""

from __future__ import annotations

from typing import Any, Literal, final

import jax
import numpy as np

from distlab.data import Dataset
from distlab.data._engine import State
from distlab.errors import InvalidArgumentError, NotBatchedError, ValueShapeError
from distlab.input import split
from distlab.input._parts import Parts
from distlab.input._place import settled
from distlab.input._step import Reader, Step, Steps, full_batch
from distlab.input.spec import divided_spec


@final
class WholeBatches(Steps):
    """Steps of a dataset of global batches.

    Args:
      dataset: the global batches; with one replica, anything.
      replicas: how many replicas each is divided over.
      looked_into: whether what the dataset is like may be found out by looking
        into it. False for what may be read once, or at a price.
    """

    policy: Literal["rebatch"] = "rebatch"

    def __init__(self, dataset: Dataset, replicas: int, *, looked_into: bool) -> None:
        self._dataset = dataset
        self._replicas = replicas
        self.fills = True
        size = full_batch(dataset)
        self.nominal = None if size is None else -(-size // replicas)
        if looked_into and replicas > 1 and not dataset.batched:
            raise NotBatchedError(
                "A distributed dataset divides global batches over the replicas, so every "
                "component of its elements needs a batch dimension, but the elements are "
                f"{dataset.element_spec}. Call .batch(global_batch_size) on the dataset first."
            )

    def open(self) -> Reader:
        """Starts a pass."""
        return _Divided(self._dataset, self._replicas)

    @property
    def local_spec(self) -> Any:
        """The batch's with its first dimension divided."""
        return divided_spec(self._dataset.element_spec, self._replicas)

    def __len__(self) -> int:
        """As many as global batches."""
        return len(self._dataset)

    def __repr__(self) -> str:
        """Names the dataset."""
        return repr(self._dataset)


@final
class _Divided(Reader):
    def __init__(self, dataset: Dataset, replicas: int) -> None:
        self._elements = dataset.elements()
        self._replicas = replicas

    def read(self) -> Step:
        element = next(self._elements)
        leaves, structure = jax.tree.flatten(element.value)
        leaves = [settled(leaf) for leaf in leaves]
        if self._replicas == 1:
            sizes = [_rows_of_first(leaves)]
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
                "The position is not one of an iterator that divides global batches. Restore into "
                "an iterator made in the same way."
            )
        self._elements.restore(state)

    def close(self) -> None:
        self._elements.close()


def _cut(leaf: np.ndarray, sizes: list[int]) -> Parts:
    if sizes[-1] == sizes[0]:
        return leaf.reshape(len(sizes), sizes[0], *leaf.shape[1:])
    parts, start = [], 0
    for size in sizes:
        parts.append(leaf[start : start + size])
        start += size
    return parts


def _rows_of_first(leaves: list[Any]) -> int:
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
            f"shapes {shapes}."
        )
    return shapes[0][0] if shapes else 0
