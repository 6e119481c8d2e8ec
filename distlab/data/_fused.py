"""Elements that are positions: one by one, or a whole batch from one chunk."""

from __future__ import annotations

from collections.abc import Callable

from distlab.data._engine import Element, Reader, State, Stream
from distlab.data._positions import Positions

_CHUNK = 256


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


class _SingleReader(Reader):
    """Reads a chunk of positions ahead and gives them one by one."""

    def __init__(self, start: Callable[[], Positions]) -> None:
        super().__init__()
        self._start = start
        self._positions = start()
        self._given = 0
        self._chunk = self._positions.take(0)
        self._next = 0

    def __next__(self) -> Element:
        if self._next == len(self._chunk):
            self._chunk = self._positions.take(_CHUNK)
            self._next = 0
            if not len(self._chunk):
                raise StopIteration
        position = self._chunk[self._next]
        self._next += 1
        self._given += 1
        return Element(position, None)

    def get_state(self) -> State:
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        self._positions = self._start()
        self._given = self._positions.skip(state["given"])
        self._chunk = self._positions.take(0)
        self._next = 0


class _BatchReader(Reader):
    """Takes the positions of one batch at a time."""

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
        self._positions = self._start()
        self._given = self._positions.skip(state["given"])
