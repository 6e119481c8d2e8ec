"""Streams of positions or rows, computed a chunk or a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.positions import Indices, Positions
from distlab.errors import InvalidArgumentError

_CHUNK = 256
_CHUNK_BYTES = 1 << 20


class Rows(Protocol):
    """A source of rows, held in arrays."""

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""

    def split(self, positions: Indices) -> list[Any]:
        """Returns the rows at positions, as separate values."""


class PositionStream(Stream):
    """Single positions (int64) in some order."""

    def __init__(self, start: Callable[[], Positions]) -> None:
        super().__init__()
        self._start = start

    def __iter__(self) -> Reader:
        """Starts a pass."""
        return _SingleReader(self._start)

    def batched(self, size: int, *, drop_remainder: bool) -> Stream:
        """Returns batches of positions, each computed at once."""
        return _BatchStream(self._start, size, drop_remainder=drop_remainder)


class _BatchStream(Stream):
    def __init__(self, start: Callable[[], Positions], size: int, *, drop_remainder: bool) -> None:
        super().__init__()
        self._start, self._size, self._drop = start, size, drop_remainder

    def __iter__(self) -> Reader:
        return _BatchReader(self._start, self._size, drop_remainder=self._drop)


class RowStream(Stream):
    """Single rows of a source in some order, with their positions."""

    def __init__(self, start: Callable[[], Positions], source: Rows) -> None:
        super().__init__()
        self._start, self._source = start, source

    def __iter__(self) -> Reader:
        """Starts a pass."""
        return _SingleReader(self._start, self._source)


class _SingleReader(Reader):
    """Reads a chunk ahead and returns its positions or rows one by one."""

    def __init__(self, start: Callable[[], Positions], source: Rows | None = None) -> None:
        super().__init__()
        self._start, self._source = start, source
        self._size = _CHUNK
        if source is not None:
            self._size = max(1, min(_CHUNK, _CHUNK_BYTES // max(1, source.row_bytes)))
        self._positions = start()
        self._given = 0
        self._chunk: list[Element] = []
        self._next = 0

    def __next__(self) -> Element:
        if self._next == len(self._chunk):
            self._chunk, self._next = self._read(), 0
            if not self._chunk:
                raise StopIteration
        element = self._chunk[self._next]
        self._next += 1
        self._given += 1
        return element

    def get_state(self) -> State:
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        self._positions, self._given = _started_after(state["given"], self._start)
        self._chunk, self._next = [], 0

    def _read(self) -> list[Element]:
        positions = self._positions.take(self._size)
        if self._source is None:
            return [Element(position, None) for position in positions]
        rows = self._source.split(positions)
        return [Element(row, positions[i : i + 1]) for i, row in enumerate(rows)]


class _BatchReader(Reader):
    """Returns the positions of one batch at a time."""

    def __init__(self, start: Callable[[], Positions], size: int, *, drop_remainder: bool) -> None:
        super().__init__()
        self._start, self._size, self._drop = start, size, drop_remainder
        self._positions = start()
        self._given = 0

    def __next__(self) -> Element:
        positions = self._positions.take(self._size)
        if not len(positions) or (self._drop and len(positions) < self._size):
            raise StopIteration
        self._given += len(positions)
        return Element(positions, None)

    def get_state(self) -> State:
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        self._positions, self._given = _started_after(state["given"], self._start)


def _started_after(given: int, start: Callable[[], Positions]) -> tuple[Positions, int]:
    """Starts positions, and passes over those that were given."""
    positions = start()
    passed = positions.skip(given)
    if passed != given or given < 0:
        raise InvalidArgumentError(
            f"The position is after {given} elements, and this dataset has {max(passed, 0)} there. "
            "Restore it into an iterator over the data that it was saved with."
        )
    return positions, given
