"""The variables of a program that lie on parameter servers, moved as few large arrays.

All values of one server come in one buffer. The program takes a buffer as one array for each
stretch of one type, and divides it; it joins the operands of its operations in the same way. So a
step with a hundred variables moves a few arrays, and Python does nothing for each variable.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.variables.remote_storage import (
    Change,
    Kind,
    PackedChanges,
    PackedValues,
    RemoteStorage,
    ValueServers,
)

_T = TypeVar("_T")


class _Stretch(NamedTuple):
    """Neighbours of one type in a server's buffer, by their positions among all arrays."""

    part: int
    begin: int
    end: int
    dtype: np.dtype
    members: list[int]
    shapes: list[tuple[int, ...]]


@final
class RemoteReads:
    """The values that a program reads, of `nbytes` bytes in all."""

    def __init__(self, values: Sequence[tuple[RemoteStorage, Kind]]) -> None:
        self._servers: ValueServers = values[0][0].servers
        positions = sorted(
            range(len(values)), key=lambda n: (values[n][0].key.server, values[n][1][1].name)
        )
        self._parts = []
        members = []
        for server, numbers in _grouped(positions, lambda n: values[n][0].key.server):
            keys = tuple(values[n][0].key for n in numbers)
            self._parts.append(PackedValues(server, keys, tuple(values[n][1] for n in numbers)))
            members.append(numbers)
        self._stretches = _stretches([part.kinds for part in self._parts], members)
        self._count = len(values)
        self.nbytes = sum(stretch.end - stretch.begin for stretch in self._stretches)

    def read(self) -> list[np.ndarray]:
        """Returns the present values as flat arrays, by one call of each server."""
        buffers = self._servers.read_packed(self._parts)
        return [
            buffers[stretch.part][stretch.begin : stretch.end].view(stretch.dtype)
            for stretch in self._stretches
        ]

    def divide(self, flat: Sequence[Any]) -> list[Any]:
        """Returns each value, from the flat arrays of NumPy or of JAX."""
        values: list[Any] = [None] * self._count
        for array, stretch in zip(flat, self._stretches, strict=True):
            begin = 0
            for member, shape in zip(stretch.members, stretch.shapes, strict=True):
                end = begin + math.prod(shape)
                values[member] = array[begin:end].reshape(shape)
                begin = end
        return values


@final
class RemoteChanges:
    """The operations that a program returns, in `arrays` flat arrays; of each value in order."""

    def __init__(
        self, changes: Sequence[tuple[RemoteStorage, str, int]], kinds: Sequence[Kind]
    ) -> None:
        self._servers: ValueServers = changes[0][0].servers
        ends = list(itertools.accumulate(count for *_, count in changes))
        operands = [range(end - count, end) for (*_, count), end in zip(changes, ends, strict=True)]
        types = [tuple(kinds[o][1].name for o in own) for own in operands]
        # Operations on one value keep their order, as all its operands have the same types.
        of_key: dict[Any, set[Any]] = {}
        for (storage, *_), own_types in zip(changes, types, strict=True):
            of_key.setdefault(storage.key, set()).add(own_types)
        sortable = all(len(own) == 1 for own in of_key.values())
        order = sorted(
            range(len(changes)),
            key=lambda n: (changes[n][0].key.server, types[n] if sortable else ()),
        )
        self._parts = []
        members = []
        for server, numbers in _grouped(order, lambda n: changes[n][0].key.server):
            own = [operand for n in numbers for operand in operands[n]]
            self._parts.append(
                PackedChanges(
                    server,
                    tuple(Change(changes[n][0].key, *changes[n][1:]) for n in numbers),
                    tuple(kinds[operand] for operand in own),
                )
            )
            members.append(own)
        self._stretches = _stretches([part.kinds for part in self._parts], members)
        self.arrays = len(self._stretches)

    def join(self, operands: Sequence[Any]) -> list[jax.Array]:
        """Returns operands as flat arrays."""
        return [
            jnp.concatenate([operands[member].reshape(-1) for member in stretch.members])
            for stretch in self._stretches
        ]

    def send(self, flat: Sequence[Any]) -> None:
        """Sends the operations to the servers, by one call of each."""
        buffers: list[list[np.ndarray]] = [[] for _ in self._parts]
        for array, stretch in zip(flat, self._stretches, strict=True):
            buffers[stretch.part].append(np.asarray(array).view(np.uint8))
        self._servers.change_packed(
            [
                (part, own[0] if len(own) == 1 else np.concatenate(own))
                for part, own in zip(self._parts, buffers, strict=True)
            ]
        )


def _stretches(kinds: Sequence[Sequence[Kind]], members: Sequence[Sequence[int]]) -> list[_Stretch]:
    stretches = []
    for part, (own, numbers) in enumerate(zip(kinds, members, strict=True)):
        begin = 0
        for dtype, together in _grouped(range(len(own)), lambda n, own=own: own[n][1]):  # type: ignore[misc]
            shapes = [own[n][0] for n in together]
            end = begin + sum(map(math.prod, shapes)) * dtype.itemsize
            positions = [numbers[n] for n in together]
            stretches.append(_Stretch(part, begin, end, dtype, positions, shapes))
            begin = end
    return stretches


def _grouped(numbers: Iterable[int], key: Callable[[int], _T]) -> Iterable[tuple[_T, list[int]]]:
    """Returns neighbours with the same key."""
    return ((value, list(own)) for value, own in itertools.groupby(numbers, key))
