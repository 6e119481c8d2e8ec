"""One source from several: the events of all processes in one order, on one clock.

A cursor of the merged source is a number, as of any source. Behind it stands a vector
of cursors, one for each process: `Merged` keeps, for each number, the process it was
dealt to, and so finds the vector of any number again. An event that was returned keeps its
number; an event that is stored late comes after those that were returned before.
"""

from __future__ import annotations

import bisect
import heapq
import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from distlab.events.kinds import ClockOffset, Event, Unknown
from distlab.events.source import Chunk, Envelope, Source

PATIENCE_SECONDS: Final = 0.25
"""The longest wait of an event for earlier ones of living processes that have stored none yet."""

_PAGE: Final = 1_000
"""Events read from one process at once."""

_STRIDE: Final = 4_096
"""Numbers from one remembered vector of cursors to the next."""


def _never() -> bool:
    return False


class Origin(NamedTuple):
    """The events of one process."""

    source: Source  # Its ring or run file
    clock_offset_ns: int = 0  # To the common clock, up to its first `ClockOffset`
    live: Callable[[], bool] = _never  # Returns whether its process may still emit events


class Offsets:
    """The offsets of a process's clock from the common clock, `first` up to a `ClockOffset`."""

    def __init__(self, first: int = 0) -> None:
        self._since_ns: list[int] = []
        self._offsets = [first]

    def note(self, event: Event | Unknown) -> None:
        """Takes over a newer offset, if the event is one."""
        if not isinstance(event, ClockOffset):
            return
        if not self._since_ns or event.time_ns > self._since_ns[-1]:
            self._since_ns.append(event.time_ns)
            self._offsets.append(event.offset_ns)

    def at(self, time_ns: int) -> int:
        """Returns the offset at a time of the process's own clock."""
        return self._offsets[bisect.bisect_right(self._since_ns, time_ns)]

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest offset."""
        return min(self._offsets), max(self._offsets)

    def moved(self, event: Event | Unknown) -> Event | Unknown:
        """Returns an event with its times on the common clock."""
        return on_clock(event, self.at(event.time_ns))


def on_clock(event: Event | Unknown, offset_ns: int) -> Event | Unknown:
    """Returns an event with its times moved to another clock."""
    if not offset_ns:
        return event
    if isinstance(event, Unknown):
        return msgspec.structs.replace(event, time_ns=event.time_ns + offset_ns)
    moved: dict[str, Any] = {name: getattr(event, name) for name in event.MOMENTS}
    for name, at in moved.items():
        moved[name] = [one + offset_ns for one in at] if isinstance(at, list) else at + offset_ns
    return msgspec.structs.replace(event, **moved)


class _Item(NamedTuple):
    """An event that was read and not returned yet."""

    key: int  # The time that orders it; those of a process never decrease, to keep its order
    envelope: Envelope
    skipped: int  # Numbers before it that stand for no event


class _Reader:
    """Reads ahead in the events of one process."""

    def __init__(self, origin: Origin) -> None:
        self.source, first, self.live = origin
        self._offsets = Offsets(first)
        self.cursor = 0
        self._latest_ns = -(1 << 63)
        self.read_at = 0.0
        self.items: deque[_Item] = deque()

    def fill(self, now: float) -> bool:
        """Reads on, if nothing is left; returns whether there is an item."""
        if not self.items:
            chunk = self.source.since(self.cursor, _PAGE)
            skipped = chunk.cursor - self.cursor - len(chunk.events)
            for process, event in chunk.envelopes():
                self._offsets.note(event)
                moved = self._offsets.moved(event)
                self._latest_ns = max(self._latest_ns, moved.time_ns)
                self.items.append(_Item(self._latest_ns, Envelope(process, moved), skipped))
                skipped = 0
            if chunk.events:
                self.cursor, self.read_at = chunk.cursor, now
        return bool(self.items)

    def reread(self, first: int, end: int) -> list[Envelope | None]:
        """Reads events again."""
        found: list[Envelope | None] = []
        while first + len(found) < end:
            begin = first + len(found)
            chunk = self.source.since(begin, end - begin)
            if not chunk.events or chunk.cursor > end:  # the rest of what a damaged file lacks
                break
            found += [None] * (chunk.cursor - begin - len(chunk.events))
            found += [Envelope(p, self._offsets.moved(e)) for p, e in chunk.envelopes()]
        return found + [None] * (end - first - len(found))


class Merged:
    """A source that merges those of several processes. It may be used from several threads.

    Each process's events keep their order; between processes the earlier event comes first.
    """

    def __init__(
        self, origins: Sequence[Origin], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._readers = [_Reader(origin) for origin in origins]
        self._clock = clock
        self._lock = threading.Lock()
        self._dealt = array("B" if len(origins) <= 256 else "L")
        self._vectors: list[tuple[int, ...]] = [(0,) * len(origins)]
        self._heap: list[tuple[int, int]] = []

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        """Returns up to `limit` events from `cursor` on, at once (never waits)."""
        with self._lock:
            self._advance(cursor)
            if cursor < len(self._dealt):
                return self._again(cursor, limit)
            if cursor == len(self._dealt):
                return self._next(limit)
            return Chunk([], cursor, 0)

    def add(self, origin: Origin) -> None:
        """Reads a further process from now on; its events come after those already returned."""
        with self._lock:
            self._readers.append(_Reader(origin))
            self._vectors = [(*vector, 0) for vector in self._vectors]
            if len(self._readers) > 256 and self._dealt.typecode == "B":
                self._dealt = array("L", self._dealt.tolist())

    def vector(self, cursor: int) -> tuple[int, ...]:
        """Returns the cursor in each process that stands behind a cursor."""
        with self._lock:
            self._advance(cursor)
            return self._vector(min(cursor, len(self._dealt)))

    def _advance(self, cursor: int) -> None:
        """Deals numbers up to a cursor of an earlier reading of the same events."""
        while len(self._dealt) < cursor and self._next(cursor - len(self._dealt)).events:
            pass

    def _next(self, limit: int) -> Chunk:
        """Returns events that were not returned before."""
        now = self._clock()
        waiting = False
        held = {place for _, place in self._heap}
        for place in range(len(self._readers)):
            if place not in held:
                waiting |= not self._hold(place, now)
        found: list[Envelope] = []
        while self._heap and len(found) < limit:
            place = self._heap[0][1]
            reader = self._readers[place]
            if waiting and now - reader.read_at < PATIENCE_SECONDS:
                break
            item = reader.items.popleft()
            self._dealt.extend([place] * (item.skipped + 1))
            found.append(item.envelope)
            if reader.items:
                heapq.heapreplace(self._heap, (reader.items[0].key, place))
            else:
                heapq.heappop(self._heap)
                waiting |= not self._hold(place, now)
        return _chunk(found, len(self._dealt))

    def _hold(self, place: int, now: float) -> bool:
        """Puts a process in line by its next event; returns whether none is to be awaited."""
        reader = self._readers[place]
        live = not reader.items and reader.live()  # asked before reading: its end is read then
        if reader.fill(now):
            heapq.heappush(self._heap, (reader.items[0].key, place))
            return True
        return not live

    def _vector(self, cursor: int) -> tuple[int, ...]:
        while len(self._vectors) <= cursor // _STRIDE:
            self._vectors.append(self._count_from(len(self._vectors) - 1, cursor))
        return self._count_from(cursor // _STRIDE, cursor)

    def _count_from(self, stride: int, cursor: int) -> tuple[int, ...]:
        """Returns the vector of a cursor, or of the end of the stride before it."""
        begin = stride * _STRIDE
        dealt = Counter(self._dealt[begin : min(begin + _STRIDE, cursor)])
        return tuple(count + dealt[place] for place, count in enumerate(self._vectors[stride]))

    def _again(self, cursor: int, limit: int) -> Chunk:
        """Returns events that were returned before, by the same numbers."""
        while True:
            end = min(cursor + limit, len(self._dealt))
            part = self._dealt[cursor:end]
            counts = Counter(part)
            again = {
                place: iter(self._readers[place].reread(first, first + counts[place]))
                for place, first in enumerate(self._vector(cursor))
                if counts[place]
            }
            found = [envelope for place in part if (envelope := next(again[place])) is not None]
            if found or end == len(self._dealt):
                return _chunk(found, end)
            cursor = end


def _chunk(found: list[Envelope], cursor: int) -> Chunk:
    processes = tuple(envelope.process for envelope in found) or (0,)
    return Chunk([envelope.event for envelope in found], cursor, 0, processes)
