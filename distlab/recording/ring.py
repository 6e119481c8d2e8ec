"""The last events of this process, in memory, for readers of all kinds.

Appending takes no lock. It may happen in a finaliser, that is in the middle of
anything else this process does, the ring's own work included; waiting for a
lock there would never end. Python's list append is atomic, so events go to an
open list, which is closed into a block, under a lock, every `_BLOCK` events by
the first thread that acquires the lock without waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from distlab.events import (
    Capture,
    Chunk,
    DeviceSample,
    Event,
    Placement,
    Preview,
    Run,
    Sharding,
    StepReady,
    Unknown,
)

T = TypeVar("T")

_BLOCK: Final = 128
_WITH_PAYLOAD: Final = {Sharding, Preview, Capture, StepReady, DeviceSample}
_TIME_BYTES: Final = 40
"""The memory of one number of nanoseconds in a list: a pointer and an `int`."""

_PINNED_ROOM: Final = 16
"""A reader with a pin may hold this many times the ring's bounds."""


@dataclass(slots=True, eq=False)
class Pin:
    """The place of a reader that must not miss an event: the next number it has not read."""

    cursor: int


@dataclass(slots=True)
class _Block:
    first: int
    events: list[Event]
    payload: int
    standing: list[tuple[int, Event]]

    @property
    def end(self) -> int:
        return self.first + len(self.events)


@dataclass(slots=True)
class _Standing:
    """Events that are kept for good, by sequence number, oldest first."""

    payload_limit: int
    events: dict[int, Event] = field(default_factory=dict)
    payload: int = 0
    _placed: dict[int, int] = field(default_factory=dict)
    _run: int | None = None

    def add(self, sequence: int, event: Event) -> None:
        """Keeps an event; a freed placement removes the older one instead."""
        if isinstance(event, Placement):
            if event.action == "free":
                self._drop(self._placed.pop(event.array, None))
                return
            self._placed[event.array] = sequence
        elif isinstance(event, Run):
            self._drop(self._run)
            self._run = sequence
        self.events[sequence] = event
        self.payload += _payload(event)
        while self.payload > self.payload_limit:
            self._drop(next(s for s, old in self.events.items() if _payload(old)))

    def _drop(self, sequence: int | None) -> None:
        if sequence is not None:
            self.payload -= _payload(self.events.pop(sequence))


class Ring:
    """A bounded memory of events, numbered from 0 as they arrive.

    Standing events (see `distlab.events.Event.STANDING`) outlive the bounds:
    they stay until a later event revokes them. Previews among them share the
    bound on payload.

    Attributes:
      process: Index of the process whose events it keeps.
    """

    def __init__(
        self, capacity: int = 32_768, payload_bytes: int = 16 << 20, process: int = 0
    ) -> None:
        self.process = process
        self._capacity = capacity
        self._payload_bytes = payload_bytes
        # It knows its owner: see `_seal`.
        self._lock = threading.RLock()
        self._busy = False
        self._open: list[Event] = []
        self._blocks: deque[_Block] = deque()
        self._sealed = 0
        self._count = 0
        self._payload = 0
        self._standing = _Standing(payload_bytes)
        self._pins: list[Pin] = []

    def append(self, event: Event) -> None:
        """Appends an event. Never waits."""
        self._open.append(event)
        if len(self._open) >= _BLOCK:
            self._seal()

    @property
    def end(self) -> int:
        """The sequence number of the next event."""
        return self._undisturbed(lambda: self._sealed + len(self._open))

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        """Returns up to `limit` events from `cursor` on, at once (never waits)."""

        def read() -> Chunk:
            found: list[Event | Unknown] = []
            after = cursor
            for sequence, event in self._from(cursor):
                if len(found) == limit:
                    break
                found.append(event)
                after = sequence + 1
            return Chunk(found, after, after - cursor - len(found), (self.process,))

        return self._undisturbed(read)

    def pin(self) -> tuple[list[Event], Pin]:
        """Returns all standing events, and keeps all events after them."""

        def begin() -> tuple[list[Event], Pin]:
            known = _Standing(self._payload_bytes)
            for sequence, event in self._from(0):
                if event.STANDING:
                    known.add(sequence, event)
            pin = Pin(self._sealed + len(self._open))
            self._pins.append(pin)
            return list(known.events.values()), pin

        return self._undisturbed(begin)

    def unpin(self, pin: Pin) -> None:
        """Drops a pin and the events that it kept. Twice does nothing."""
        with self._lock:
            if pin in self._pins:
                self._pins.remove(pin)

    def after_fork(self) -> None:
        """Makes the ring usable in a forked child, where its readers do not exist."""
        self._lock, self._busy = threading.RLock(), False
        self._pins.clear()

    def _undisturbed(self, read: Callable[[], T]) -> T:
        """Returns what a function reads while no thread closes a block, this one included."""
        with self._lock:
            busy, self._busy = self._busy, True
            try:
                return read()
            finally:
                self._busy = busy

    def _from(self, cursor: int) -> Iterator[tuple[int, Event]]:
        """Yields the events that are kept from `cursor` on. Call it with the lock held."""
        start = len(self._blocks)
        while start and self._blocks[start - 1].end > cursor:
            start -= 1
        if start == 0:
            for sequence, event in self._standing.events.items():
                if sequence >= cursor:
                    yield sequence, event
        for place in range(start, len(self._blocks)):
            block = self._blocks[place]
            skipped = max(0, cursor - block.first)
            yield from enumerate(block.events[skipped:], block.first + skipped)
        skipped = max(0, cursor - self._sealed)
        yield from enumerate(self._open[skipped:], self._sealed + skipped)

    def _seal(self) -> None:
        """Closes the open list into a block and makes room, unless the ring is in use.

        That may be in another thread, or in this one, where a finaliser appends. An interrupt may
        come between `acquire` and what follows it. So whether this thread has the lock is asked of
        the lock: one that is left locked would stop every reader for good.
        """
        if self._busy:
            return
        try:
            if self._lock.acquire(blocking=False):
                self._busy = True
                try:
                    self._close()
                finally:
                    self._busy = False
        finally:
            try:  # noqa: SIM105 - entering `suppress` could be interrupted
                self._lock.release()
            except RuntimeError:  # another thread has it
                pass

    def _close(self) -> None:
        events = self._open.copy()
        count = len(events)
        block = _block(self._sealed, events)
        # Nothing is called from here until the block is there: an interrupt comes after calls.
        del self._open[:count]
        self._sealed += count
        self._count += count
        self._payload += block.payload
        self._blocks.append(block)
        while self._blocks and self._over(self._blocks[0]):
            self._evict()

    def _over(self, oldest: _Block) -> bool:
        """Returns whether the oldest block has to be evicted."""
        room = 1
        if any(pin.cursor < oldest.end for pin in self._pins):
            room = _PINNED_ROOM
        return self._count > room * self._capacity or self._payload > room * self._payload_bytes

    def _evict(self) -> None:
        block = self._blocks[0]
        count = len(block.events)
        for sequence, event in block.standing:
            self._standing.add(sequence, event)
        # Nothing is called here either.
        self._count -= count
        self._payload -= block.payload
        del self._blocks[0]


def _block(first: int, events: list[Event]) -> _Block:
    """Returns a block; most hold only events that are neither large nor standing."""
    kinds: set[type[Event]] = set(map(type, events))
    payload = sum(map(_payload, events)) if not kinds.isdisjoint(_WITH_PAYLOAD) else 0
    standing: list[tuple[int, Event]] = []
    if any(kind.STANDING for kind in kinds):
        standing = [(s, e) for s, e in enumerate(events, first) if e.STANDING]
    return _Block(first, events, payload, standing)


def _payload(event: Event) -> int:
    """Returns the bytes of an event beyond its few numbers and names."""
    if isinstance(event, StepReady):
        return _TIME_BYTES * len(event.ready_ns)
    if isinstance(event, DeviceSample):
        return _TIME_BYTES * len(event.busy_ns)
    if isinstance(event, Sharding):
        return len(event.indices or b"") + 8 * len(event.sizes)
    if isinstance(event, Preview):
        return len(event.data) + len(event.indices)
    if isinstance(event, Capture):
        return sum(map(len, event.spans))
    return 0
