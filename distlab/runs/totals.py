"""What a run file knows of its events without reading them all: numbers kept as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from distlab.events import Event, Lost, Metric, Step, Unknown

_NUMBERS: Final = ("steps", "examples", "lost")


class Totals:
    """Numbers of all events stored so far.

    Attributes:
      events: kind to how many there are.
      steps, examples, lost: steps, their examples, and events that were lost.
      metrics: the last value of each metric.
    """

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.steps = 0
        self.examples = 0
        self.lost = 0
        self.metrics: dict[str, float] = {}

    def add(self, events: Sequence[Event | Unknown], kinds: Sequence[str]) -> None:
        """Counts events.

        Args:
          events: the events.
          kinds: the kinds they are stored as, in their order.
        """
        came = Counter(kinds)
        self.events.update(came)
        if came["step"]:
            self.steps += came["step"]
            self.examples += sum([e.examples for e in events if type(e) is Step])
        if came["metric"] or came["lost"]:
            for event in events:
                if type(event) is Metric:
                    self.metrics.update(event.values)
                elif type(event) is Lost:
                    self.lost += event.count

    def rows(self) -> list[tuple[str, int | bytes]]:
        """Returns the numbers as the run file keeps them: names and values."""
        return [
            *((name, getattr(self, name)) for name in _NUMBERS),
            ("events", msgspec.msgpack.encode(self.events)),
            ("metrics", msgspec.msgpack.encode({k: float(v) for k, v in self.metrics.items()})),
        ]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, Any]]) -> Totals:
        """Returns the numbers that a run file keeps.

        Raises:
          ValueError: they are damaged.
        """
        found = dict(rows)
        totals = cls()
        try:
            for name in _NUMBERS:
                setattr(totals, name, int(found[name]))
            totals.events = Counter(msgspec.msgpack.decode(found["events"], type=dict[str, int]))
            totals.metrics = msgspec.msgpack.decode(found["metrics"], type=dict[str, float])
        except (KeyError, TypeError, msgspec.DecodeError) as error:
            raise ValueError("the totals are damaged") from error
        return totals
