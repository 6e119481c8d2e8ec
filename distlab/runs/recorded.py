"""The parts of a recorded run that its summary and its exports read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from distlab.events import Chunk, Envelope, Event, Unknown

_EVENTS_AT_ONCE: Final = 256
"""Events decoded at once: Python's garbage collector visits all that are alive."""


class Recorded(Protocol):
    """A recorded run, as its summary and its exports read it."""

    path: Path
    meta: dict[str, Any]

    @property
    def live(self) -> bool:
        """True while it is being recorded."""

    @property
    def processes(self) -> tuple[int, ...]:
        """Indices of the processes that recorded it."""

    def events(self, kind: str | None = None) -> Iterator[Event | Unknown]:
        """Yields the events of a kind, by default all."""

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        """Returns up to `limit` events from `cursor` on."""


def envelopes(run: Recorded) -> Iterator[Envelope]:
    """Yields all events of a run, each with its process."""
    chunk = run.since(0, _EVENTS_AT_ONCE)
    while chunk.events:
        yield from chunk.envelopes()
        chunk = run.since(chunk.cursor, _EVENTS_AT_ONCE)
