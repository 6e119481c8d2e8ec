"""Batches placed on the devices: assembled into per-replica values."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

import jax
import numpy as np

from distlab.data.plan.engine import Pass, State
from distlab.devices import jax_internals
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import StructureError, ValueShapeError
from distlab.input.batches import Parts, Shapes, Step
from distlab.values.distributed import PerReplica, Shape
from distlab.values.plain_arrays import are_of_devices
from distlab.values.wide_integers import require_kept

_KINDS_ON_DEVICES: Final = "biufcV"


def assemble(
    parts: Parts, mesh: ReplicaMesh, *, fetch: bool, everywhere: Shapes | None = None
) -> Any:
    """Assembles the value of one component from its parts."""
    first = parts[0]
    on_host = isinstance(first, bytes) or first.dtype.kind not in _KINDS_ON_DEVICES
    if not on_host:
        _require_numbers_of_devices(first.dtype)
        if fetch or everywhere is not None:
            for part in (parts,) if isinstance(parts, np.ndarray) else parts:
                require_kept(part, "A component of a batch")
    if mesh.replicas == 1:
        return first if on_host or not fetch else jax.device_put(first, mesh.whole)
    if on_host:
        return PerReplica(_objects(parts))
    if everywhere is not None:
        largest = tuple(map(max, zip(*everywhere, strict=True)))
        padded = [_padded(part, largest) for part in parts]
        stacked = jax_internals.put_rows(padded, mesh)
        return PerReplica(stacked, None if len(set(everywhere)) == 1 else everywhere)
    rows, shapes = (parts, None) if isinstance(parts, np.ndarray) else _rows(parts)
    if not fetch:
        return PerReplica(np.asarray(rows), shapes)
    return PerReplica(jax_internals.put_rows(rows, mesh), shapes)


def _require_numbers_of_devices(dtype: np.dtype[Any]) -> None:
    if not are_of_devices(dtype):
        raise StructureError(
            f"A component of a batch has the dtype {dtype}, which no device can hold. Convert it "
            "in the dataset, for example with map(lambda x: x.astype('float32')), or with "
            "x.view('uint8') for bytes."
        )


def _rows(parts: Sequence[Any]) -> tuple[Sequence[Any], tuple[Shape, ...] | None]:
    """Returns the parts padded to one shape, and their own shapes; None when all are equal."""
    shapes = tuple(part.shape for part in parts)
    if shapes.count(shapes[0]) == len(shapes):
        return parts, None
    if len({(part.ndim, part.dtype) for part in parts}) > 1:
        raise ValueShapeError(
            "A component must have one dtype and one number of dimensions on all replicas, got "
            f"{[f'{part.dtype}{list(part.shape)}' for part in parts]}. Convert them in the dataset."
        )
    largest = tuple(map(max, zip(*shapes, strict=True)))
    return [_padded(part, largest) for part in parts], shapes


def _padded(part: np.ndarray, shape: Shape) -> np.ndarray:
    if part.shape == shape:
        return part
    row = np.zeros(shape, part.dtype)
    row[tuple(slice(n) for n in part.shape)] = part
    return row


def _objects(parts: Parts) -> np.ndarray:
    objects = np.empty(len(parts), dtype=object)
    for i, part in enumerate(parts):
        objects[i] = part
    return objects


class PlacedStep(NamedTuple):
    """A step on the devices, and the caller's nanoseconds of waiting for it and of placing it."""

    value: Any
    leaves: list[Any]
    step: Step
    wait_ns: int
    transfer_ns: int


@final
class Feed(Pass):
    """Reads and places each step on demand; without `fetch` batches stay on the host."""

    def __init__(self, reader: Pass, mesh: ReplicaMesh, *, fetch: bool) -> None:
        self._reader, self._mesh, self._fetch = reader, mesh, fetch

    def __next__(self) -> PlacedStep:
        """Reads and places the next step."""
        asked = time.monotonic_ns()
        step: Step = next(self._reader)
        read = time.monotonic_ns()
        unknown: Sequence[Shapes | None] = [None] * len(step.columns)
        everywhere = unknown if step.shapes is None else step.shapes
        leaves = [
            assemble(parts, self._mesh, fetch=self._fetch, everywhere=shapes)
            for parts, shapes in zip(step.columns, everywhere, strict=True)
        ]
        value = jax.tree.unflatten(step.structure, leaves)
        return PlacedStep(value, leaves, step, read - asked, time.monotonic_ns() - read)

    def get_state(self) -> State:
        """Returns the reader's position."""
        return self._reader.get_state()

    def set_state(self, state: State) -> None:
        """Moves the reader."""
        self._reader.set_state(state)

    def interrupt(self) -> None:
        """Ends a wait for other processes in another thread."""
        self._reader.interrupt()

    def close(self) -> None:
        """Closes the reader."""
        self._reader.close()
