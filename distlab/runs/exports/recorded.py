"""What an export needs of a recorded run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from distlab.events import Chunk, Event, Unknown


class Recorded(Protocol):
    """A recorded run, as its exports read it.

    Attributes:
      path: The run's folder.
      meta: What the run file stores beside its events.
    """

    path: Path
    meta: dict[str, Any]

    def events(self, kind: str | None = None) -> Iterator[Event | Unknown]:
        """Yields the events of a kind, by default all."""

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        """Returns up to `limit` events from `cursor` on."""
