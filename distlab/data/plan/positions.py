"""Orders of examples as index arithmetic, a whole chunk at a time.

A dataset over arrays is an order of positions until a value is read. `Positions` compute
that order: `take(n)` returns the next n positions (fewer only at the end), `skip(n)` passes
over them. The readers at the end give one position, row or batch of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from distlab.data.plan.engine import Element, Reader, State
from distlab.errors import InvalidArgumentError

Indices: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_NONE: Indices = np.empty(0, np.int64)
_SKIP_CHUNK = 65_536
_WINDOW_CHUNK = 4_096
_CHUNK = 256
_CHUNK_BYTES = 1 << 20


class Positions(Protocol):
    """A stream of positions."""

    def take(self, count: int) -> Indices:
        """Returns the next `count` positions, fewer only at the end."""

    def skip(self, count: int) -> int:
        """Passes over `count` positions; returns the number there were."""


class Ascending:
    """0, 1, 2, ... up to `size`."""

    def __init__(self, size: int) -> None:
        self._next, self._size = 0, size

    def take(self, count: int) -> Indices:
        """Returns the next positions."""
        start = self._next
        self._next = min(start + count, self._size)
        return np.arange(start, self._next, dtype=np.int64)

    def skip(self, count: int) -> int:
        """Passes over positions."""
        start = self._next
        self._next = min(start + count, self._size)
        return self._next - start


class Permuted:
    """All positions of a finite stream, in random order."""

    def __init__(self, upstream: Positions, size: int, random: np.random.Generator) -> None:
        self._upstream, self._size, self._random = upstream, size, random
        self._order: Indices | None = None
        self._next = 0

    def take(self, count: int) -> Indices:
        """Returns the next positions."""
        if self._order is None:
            self._order = self._random.permutation(self._upstream.take(self._size))
        start = self._next
        chosen = self._order[start : start + count]
        self._next = start + len(chosen)
        return chosen

    def skip(self, count: int) -> int:
        """Passes over positions."""
        return len(self.take(count))


class Windowed:
    """Random order from a window of `size` positions that slides over the stream, as in tf.data.

    A chunk of draws is computed at once: each finds in its place what the one before stored there.
    """

    def __init__(self, upstream: Positions, size: int, random: np.random.Generator) -> None:
        self._upstream, self._size, self._random = upstream, size, random
        self._window: Indices | None = None
        self._ready = _NONE
        self._ended = False

    def take(self, count: int) -> Indices:
        """Returns the next positions."""
        parts = [self._ready]
        available = len(self._ready)
        while available < count and not self._ended:
            parts.append(self._draw())
            available += len(parts[-1])
        ready = np.concatenate(parts) if len(parts) > 1 else self._ready
        chosen, self._ready = ready[:count], ready[count:]
        return chosen

    def skip(self, count: int) -> int:
        """Passes over positions."""
        return skip_by_taking(self, count)

    def _draw(self) -> Indices:
        """Returns a chunk of draws, and at the end the rest of the window."""
        if self._window is None:
            self._window = self._upstream.take(self._size).copy()
        fresh = self._upstream.take(_WINDOW_CHUNK)
        drawn = self._replace(self._window, fresh)
        if len(fresh) == _WINDOW_CHUNK:
            return drawn
        self._ended = True
        return np.concatenate([drawn, self._random.permutation(self._window)])

    def _replace(self, window: Indices, fresh: Indices) -> Indices:
        """Stores each fresh position in a drawn place; returns the former positions."""
        if not len(fresh):
            return fresh
        places = (self._random.random(len(fresh)) * self._size).astype(np.int64)
        order = np.argsort(places, kind="stable")
        places, fresh = places[order], fresh[order]
        # Now draws of one place are adjacent, earlier ones first.
        first = np.empty(len(places), dtype=bool)
        first[0] = True
        np.not_equal(places[1:], places[:-1], out=first[1:])
        found = np.where(first, window[places], np.roll(fresh, 1))
        last = np.roll(first, -1)
        window[places[last]] = fresh[last]
        drawn = np.empty_like(found)
        drawn[order] = found
        return drawn


class Repeated:
    """A stream repeated, started anew for each repetition."""

    def __init__(
        self, start: Callable[[int], Positions], times: int | None, size: int | None
    ) -> None:
        self._start, self._times, self._size = start, times, size
        self._epoch = 0
        self._given = 0
        self._current: Positions | None = None

    def take(self, count: int) -> Indices:
        """Returns the next positions."""
        parts: list[Indices] = []
        missing = count
        while missing > 0 and self._open():
            assert self._current is not None
            part = self._current.take(missing)
            parts.append(part)
            missing -= len(part)
            if not self._advance(len(part), ended=missing > 0):
                break
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else _NONE

    def skip(self, count: int) -> int:
        """Passes over positions; whole repetitions cost nothing."""
        missing = count
        while missing > 0 and self._open():
            if self._size and not self._given and missing >= self._size:
                whole = missing // self._size
                if self._times is not None:
                    whole = min(whole, self._times - self._epoch)
                self._epoch += whole
                self._current = None
                missing -= whole * self._size
                continue
            assert self._current is not None
            passed = self._current.skip(missing)
            missing -= passed
            if not self._advance(passed, ended=missing > 0):
                break
        return count - missing

    def _open(self) -> bool:
        if self._times is not None and self._epoch >= self._times:
            return False
        if self._current is None:
            self._current, self._given = self._start(self._epoch), 0
        return True

    def _advance(self, given: int, *, ended: bool) -> bool:
        """Goes to the next repetition; False when repetitions are empty."""
        self._given += given
        if ended:
            self._current = None
            self._epoch += 1
            return self._given > 0
        return True


class Sliced:
    """Every `step`-th position of a stream from `start` on, at most `count` of them."""

    def __init__(self, upstream: Positions, start: int, step: int, count: int | None) -> None:
        self._upstream, self._to_skip, self._step, self._left = upstream, start, step, count

    def take(self, count: int) -> Indices:
        """Returns the next positions."""
        count = self._counted(count)
        return self._upstream.take(count * self._step)[:: self._step] if count else _NONE

    def skip(self, count: int) -> int:
        """Passes over positions."""
        count = self._counted(count)
        return -(-self._upstream.skip(count * self._step) // self._step) if count else 0

    def _counted(self, count: int) -> int:
        """Goes to the start, and returns how many positions are left of so many."""
        if self._to_skip:
            self._upstream.skip(self._to_skip)
            self._to_skip = 0
        if self._left is not None:
            count = min(count, self._left)
            self._left -= count
        return count


def skip_by_taking(positions: Positions, count: int) -> int:
    """Skips by computing the positions, a chunk at a time."""
    passed = 0
    while passed < count:
        chunk = min(_SKIP_CHUNK, count - passed)
        got = len(positions.take(chunk))
        passed += got
        if got < chunk:
            break
    return passed


class Rows(Protocol):
    """A source of rows, held in arrays."""

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""

    def split(self, positions: Indices) -> list[Any]:
        """Returns the rows at positions, as separate values."""


class _Counted(Reader):
    """A reader of positions whose own position is the number of those before it."""

    def __init__(self, start: Callable[[], Positions]) -> None:
        super().__init__()
        self._start = start
        self._given = 0
        self._positions: Positions | None = None

    def get_state(self) -> State:
        """Returns the number of positions so far."""
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        """Passes over as many positions."""
        self._given, self._positions = state["given"], self._start()
        passed = self._positions.skip(self._given)
        if passed != self._given or self._given < 0:
            raise InvalidArgumentError(
                f"The position is after {self._given} elements, and this dataset has "
                f"{max(passed, 0)} there. Restore it into an iterator over the data that it was "
                "saved with."
            )

    def _take(self, count: int) -> Indices:
        if self._positions is None:
            self._positions = self._start()
        return self._positions.take(count)


class PositionReader(_Counted):
    """Single positions in some order, or the rows of a source there, a chunk read ahead."""

    def __init__(self, start: Callable[[], Positions], source: Rows | None = None) -> None:
        super().__init__(start)
        self._source = source
        self._size = _CHUNK
        if source is not None:
            self._size = max(1, min(_CHUNK, _CHUNK_BYTES // max(1, source.row_bytes)))
        self._chunk: list[Element] = []
        self._next = 0

    def __next__(self) -> Element:
        """Returns the next position, or its row."""
        if self._next == len(self._chunk):
            self._chunk, self._next = self._read(), 0
            if not self._chunk:
                raise StopIteration
        element = self._chunk[self._next]
        self._next += 1
        self._given += 1
        return element

    def set_state(self, state: State) -> None:
        """Passes over positions, and forgets the chunk."""
        super().set_state(state)
        self._chunk, self._next = [], 0

    @property
    def of_positions(self) -> bool:
        """True if its elements are positions, and no rows yet."""
        return self._source is None

    def batched(self, size: int, *, drop_remainder: bool) -> Reader:
        """Returns batches of these positions, each computed at once."""
        return _BatchReader(self._start, size, drop_remainder=drop_remainder)

    def _read(self) -> list[Element]:
        positions = self._take(self._size)
        if self._source is None:
            return [Element(position, None) for position in positions]
        rows = self._source.split(positions)
        return [Element(row, positions[i : i + 1]) for i, row in enumerate(rows)]


class _BatchReader(_Counted):
    """The positions of one batch at a time."""

    def __init__(self, start: Callable[[], Positions], size: int, *, drop_remainder: bool) -> None:
        super().__init__(start)
        self._size, self._drop = size, drop_remainder

    def __next__(self) -> Element:
        positions = self._take(self._size)
        if not len(positions) or (self._drop and len(positions) < self._size):
            raise StopIteration
        self._given += len(positions)
        return Element(positions, None)
