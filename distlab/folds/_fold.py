"""What a fold is: events go in, columns come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from distlab.events import Event

Columns: TypeAlias = dict[str, Any]
"""Names to lists, NumPy arrays or single values; each fold documents its own."""


class Fold(Protocol):
    """One idea about a run, kept up to date from its events.

    A fold knows events and nothing that draws. What its columns hold depends on
    the events and their order, never on how many came at a time.
    """

    KINDS: ClassVar[tuple[type[Event], ...]]
    """The kinds of events it wants to see; it is given no others."""

    version: int
    """Rises whenever the columns changed."""

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""

    def columns(self) -> Columns:
        """Returns what is known so far. Callers must not change it."""


class Clock:
    """Turns an event's monotonic time into seconds since the run began."""

    def __init__(self) -> None:
        self._zero_ns: int | None = None

    def start(self, time_ns: int) -> None:
        """Says when the run began; whoever says it first is right."""
        if self._zero_ns is None:
            self._zero_ns = time_ns

    def seconds(self, time_ns: int) -> float:
        """Returns seconds since the run began, 0 for anything before it."""
        self.start(time_ns)
        assert self._zero_ns is not None
        return max(0, time_ns - self._zero_ns) / 1e9
