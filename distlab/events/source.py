"""Sources of events, read in chunks by cursor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple, Protocol, runtime_checkable

from distlab.events.kinds import Event, Unknown


class Envelope(NamedTuple):
    """An event and the process that emitted it.

    Numbers in an event (steps, strategies, programs, arrays) and its times count in
    that process.

    Attributes:
      process: Index of the process, as `jax.process_index()` numbers them.
      event: The event.
    """

    process: int
    event: Event | Unknown


class Chunk(NamedTuple):
    """Events that a `Source` returned.

    Attributes:
      events: The events, oldest first.
      cursor: Where the next call of `since` goes on.
      lost: Events between the requested cursor and the first event here that are
        gone for good (a ring that overflowed); 0 for run files.
      processes: Index of the process that emitted each event; a single index
        stands for all of them.
    """

    events: list[Event | Unknown]
    cursor: int
    lost: int
    processes: tuple[int, ...] = (0,)

    def envelopes(self) -> Iterator[Envelope]:
        """Yields each event with its process."""
        each = len(self.processes) == len(self.events)
        return map(Envelope, self.processes if each else repeat(self.processes[0]), self.events)


class Source(Protocol):
    """A source of events: a ring, a run file, or several of them.

    A cursor is a sequence number, never a clock. Cursor 0 begins with the
    standing events that are still known and goes on with the oldest others.
    """

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        """Returns up to `limit` events from `cursor` on, at once (never waits)."""


@runtime_checkable
class TimedSource(Source, Protocol):
    """A source that finds events by time without reading all of them."""

    def envelopes_between(
        self, low_ns: int, high_ns: int, *, before: int | None = None, standing: bool = False
    ) -> Iterator[list[Envelope]]:
        """Yields the events of a range of time, some hundreds at a time, in their order.

        Args:
          low_ns: The first nanosecond, on the source's clock (`Event.time_ns`).
          high_ns: The first nanosecond after the range.
          before: Only events with lower sequence numbers; None for all.
          standing: Only kinds that later events refer to.
        """
