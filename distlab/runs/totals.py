"""Numbers of all events of a run file, which a summary needs and the file keeps up to date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from distlab.events import Event, Lost, Metric, Step, Unknown, kind_of
from distlab.text.counts import is_count

_NUMBERS: Final = ("steps", "examples", "lost")


class Totals:
    """Numbers of all events stored so far, and the last value of each metric."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.steps = 0
        self.examples = 0
        self.lost = 0
        self.metrics: dict[str, float] = {}

    def copy(self) -> Totals:
        """Returns the same numbers; a run may have logged 100,000 names, copied at each commit."""
        made = Totals()
        made.events, made.metrics = self.events.copy(), self.metrics.copy()
        made.steps, made.examples, made.lost = self.steps, self.examples, self.lost
        return made

    def add(self, events: Sequence[Event | Unknown], kinds: Sequence[str]) -> None:
        """Counts events."""
        added = Counter(kinds)
        self.events.update(added)
        if added["step"]:
            self.steps += added["step"]
            self.examples += sum([e.examples for e in events if type(e) is Step])
        if added["metric"] or added["lost"]:
            for event in events:
                if type(event) is Metric:
                    self.metrics.update(event.values)
                elif type(event) is Lost:
                    self.lost += event.count

    def count(self, events: Sequence[Event | Unknown]) -> None:
        """Counts events of a file that holds no totals."""
        self.add(events, [kind_of(event) for event in events])

    def rows(self) -> list[tuple[str, int | bytes]]:
        """Returns the numbers as rows of the run file: names and values."""
        return [
            *((name, int(getattr(self, name))) for name in _NUMBERS),
            ("events", msgspec.msgpack.encode(self.events)),
            ("metrics", msgspec.msgpack.encode({k: float(v) for k, v in self.metrics.items()})),
        ]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, Any]]) -> Totals:
        """Returns the numbers that a run file holds."""
        found = dict(rows)
        totals = cls()
        try:
            for name in _NUMBERS:
                if not is_count(found[name]):
                    raise ValueError(f"the total of {name} is not a count")
                setattr(totals, name, found[name])
            totals.events = Counter(msgspec.msgpack.decode(found["events"], type=dict[str, int]))
            totals.metrics = msgspec.msgpack.decode(found["metrics"], type=dict[str, float])
        except (KeyError, TypeError, msgspec.DecodeError) as error:
            raise ValueError("the totals are damaged") from error
        return totals

    @classmethod
    def over_processes(cls, parts: Sequence[Totals]) -> Totals:
        """Returns the numbers of processes that execute the same steps on own examples.

        A metric is that of the first process that logged it.
        """
        whole = cls()
        for part in reversed(parts):
            whole.events.update(part.events)
            whole.steps = max(whole.steps, part.steps)
            whole.examples += part.examples
            whole.lost += part.lost
            whole.metrics.update(part.metrics)
        return whole
