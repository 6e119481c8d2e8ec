"""Messages as bytes: a pickle, and the buffers that it refers to, which nobody copies.

A large array goes from the sender's memory to the socket, and from the socket to memory that JAX
takes as it is.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, final

import numpy as np

Piece: TypeAlias = bytes | memoryview

_PREFIX: Final = struct.Struct("<QQQ")
"""The bytes of the pickle, of the list of the buffers' sizes, and of all that follows."""

_PROTOCOL: Final = 5
_BOUNDARY: Final = 64
"""JAX takes memory that begins at a multiple of it without a copy."""

_MOST_JOINED: Final = 1 << 14
"""Larger buffers are sent as they are, smaller ones are joined."""

_RECEIVED_TOGETHER: Final = 1 << 16


def as_pieces(message: Any) -> list[Piece]:
    """Returns a message as what has to be sent, one after another."""
    buffers: list[memoryview] = []
    head = pickle.dumps(
        message, _PROTOCOL, buffer_callback=lambda buffer: buffers.append(buffer.raw())
    )
    if not buffers:
        return [_PREFIX.pack(len(head), 0, len(head)) + head]
    sizes = pickle.dumps([buffer.nbytes for buffer in buffers], _PROTOCOL)
    begin = len(head) + len(sizes)
    total = _padded(begin) + sum(_padded(buffer.nbytes) for buffer in buffers)
    pieces: list[Piece] = []
    joined = [_PREFIX.pack(len(head), len(sizes), total), head, sizes, _padding(begin)]
    for buffer in buffers:
        if buffer.nbytes > _MOST_JOINED:
            pieces += [b"".join(joined), buffer]
            joined = []
        else:
            joined.append(bytes(buffer))
        joined.append(_padding(buffer.nbytes))
    rest = b"".join(joined)
    return [*pieces, rest] if rest else pieces


@final
class Incoming:
    """Messages from the bytes that arrive."""

    def __init__(self) -> None:
        self._together = memoryview(bytearray(_RECEIVED_TOGETHER))
        self._used = 0  # of `_together`
        self._one: memoryview | None = None  # a message of which a part has come
        self._filled = 0
        self._head = self._sizes = 0

    def room(self) -> memoryview:
        """Returns where the next bytes go."""
        if self._one is not None:
            return self._one[self._filled :]
        return self._together[self._used :]

    def came(self, count: int) -> list[Any]:
        """Returns the messages that are complete now."""
        if self._one is None:
            self._used += count
            return list(self._messages())
        self._filled += count
        if self._filled < len(self._one):
            return []
        return [self._completed(self._one)]

    def _messages(self) -> Iterator[Any]:
        begin = 0
        while self._used - begin >= _PREFIX.size:
            self._head, self._sizes, total = _PREFIX.unpack_from(self._together, begin)
            begin += _PREFIX.size
            there = self._together[begin : min(begin + total, self._used)]
            begin += len(there)
            one = aligned(total)
            one[: len(there)] = there
            if len(there) < total:
                self._one, self._filled = one, len(there)
                break
            yield self._completed(one)
        rest = bytes(self._together[begin : self._used])
        self._together[: len(rest)] = rest
        self._used = len(rest)

    def _completed(self, one: memoryview) -> Any:
        self._one = None
        head = one[: self._head]
        if not self._sizes:
            return pickle.loads(head)  # noqa: S301 - of the same cluster
        end = self._head + self._sizes
        buffers, begin = [], _padded(end)
        for size in pickle.loads(one[self._head : end]):  # noqa: S301
            buffers.append(one[begin : begin + size])
            begin += _padded(size)
        return pickle.loads(head, buffers=buffers)  # noqa: S301


def aligned(size: int) -> memoryview:
    """Returns memory that JAX takes without a copy."""
    memory = np.empty(size + _BOUNDARY, np.uint8)
    begin = -memory.ctypes.data % _BOUNDARY
    return memory[begin : begin + size].data


def _padded(size: int) -> int:
    return -(-size // _BOUNDARY) * _BOUNDARY


def _padding(size: int) -> bytes:
    return bytes(_padded(size) - size)
