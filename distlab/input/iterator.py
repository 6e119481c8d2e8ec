"""Walking over the global batches, dividing each one and putting it on the devices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, final

import jax
import numpy as np

from distlab import _seam, _split, events
from distlab._mesh import ReplicaMesh
from distlab._values import PerReplica
from distlab.data import Dataset, Element
from distlab.errors import NotBatchedError, OutOfRangeError, ValueShapeError
from distlab.input._preview import Previewer

if TYPE_CHECKING:
    from distlab.strategies.abstract import Strategy

_MOST_INDICES: Final = 65_536


@final
class DistributedIterator:
    """One epoch of a distributed dataset (`tf.distribute.DistributedIterator`)."""

    def __init__(
        self, dataset: Dataset, strategy: Strategy, number: int, epoch: int, previewer: Previewer
    ) -> None:
        self._elements: Iterator[Element] = dataset.elements()
        self._strategy = strategy
        self._number = number
        self._epoch = epoch
        self._batch = 0
        self._nominal = 0
        self._previewer = previewer

    def __iter__(self) -> DistributedIterator:
        """Returns itself."""
        return self

    def __next__(self) -> Any:
        """Returns the next global batch, with a `PerReplica` at each leaf.

        With one replica the leaves are plain arrays, on its device.

        Raises:
          StopIteration: the data came to its end.
          NotBatchedError: the element has no batch dimension to divide.
          ValueShapeError: its components have different batch dimensions.
        """
        asked = time.monotonic_ns()
        element = next(self._elements)
        got = time.monotonic_ns()
        leaves, structure = jax.tree.flatten(element.value)
        examples = self._batch_size(leaves)
        parts = [examples] if self._alone else _split.sizes(examples, self._strategy.mesh.size)
        placed = [self._place(np.asarray(leaf), parts) for leaf in leaves]
        if placed:
            first = placed[0]
            array = first.stacked if isinstance(first, PerReplica) else first
            self._strategy.fed.give(array, examples)
        self._nominal = max(self._nominal, parts[0])
        self._report(element, leaves, parts, asked, got)
        self._batch += 1
        return jax.tree.unflatten(structure, placed)

    def get_next(self) -> Any:
        """Returns the next global batch, as `next()` does.

        Raises:
          OutOfRangeError: the data came to its end.
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(
                f"The dataset came to its end after {self._batch} batches. Stop the loop there, or "
                "repeat() the dataset."
            ) from None

    @property
    def _alone(self) -> bool:
        return self._strategy.mesh.size == 1

    def _batch_size(self, leaves: list[Any]) -> int:
        shapes = [np.shape(leaf) for leaf in leaves]
        if self._alone:
            return shapes[0][0] if shapes and shapes[0] else 1
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

    def _place(self, batch: np.ndarray, parts: list[int]) -> PerReplica | jax.Array:
        """Puts each replica's part of a component on its device."""
        mesh = self._strategy.mesh
        if batch.flags.writeable:
            batch = batch.copy()  # its owner may write to it again: JAX must not go on using it
        if self._alone:
            return jax.device_put(batch, mesh.whole)
        largest = parts[0]
        if parts[-1] == largest:
            return PerReplica(_put(batch.reshape(mesh.size, largest, *batch.shape[1:]), mesh))
        rows = np.zeros((mesh.size * largest, *batch.shape[1:]), batch.dtype)
        rows[: len(batch)] = batch  # parts are contiguous, so only the last rows stay empty
        shapes = tuple((part, *batch.shape[1:]) for part in parts)
        return PerReplica(_put(rows.reshape(mesh.size, largest, *batch.shape[1:]), mesh), shapes)

    def _report(
        self, element: Element, leaves: list[Any], parts: list[int], asked: int, got: int
    ) -> None:
        recorder = _seam.recorder()
        if not recorder.enabled:
            return
        now = time.monotonic_ns()
        indices = element.indices
        recorder.emit(
            events.Sharding(
                time_ns=now,
                strategy=self._strategy.number,
                dataset=self._number,
                batch=self._batch,
                epoch=self._epoch,
                sizes=parts,
                nominal=self._nominal,
                indices=None
                if indices is None or len(indices) > _MOST_INDICES
                else np.ascontiguousarray(indices, "<i8").tobytes(),
                bytes=sum(np.asarray(leaf).nbytes for leaf in leaves),
                wait_ns=got - asked,
                transfer_ns=now - got,
                policy="rebatch",
            )
        )
        self._previewer.show(recorder, leaves, indices, self._epoch, self._batch)


def _put(rows: np.ndarray, mesh: ReplicaMesh) -> jax.Array:
    """Puts row `i` on device `i`. JAX may go on using `rows`: never write to it again."""
    return jax.make_array_from_callback(rows.shape, mesh.split, rows.__getitem__)
