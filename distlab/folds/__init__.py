"""Pure folds: events go in, columns for charts come out.

`Folds` feeds all of them from one cursor. Each fold is one idea in one file,
and knows events but nothing that draws.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from distlab.events import Event, Source, Unknown
from distlab.folds._fold import Columns, Fold
from distlab.folds.batch_part import part_of_batch
from distlab.folds.batches import Batches
from distlab.folds.captures import Captures
from distlab.folds.comparison import compare
from distlab.folds.device_part import part_of_captures, part_of_devices, part_of_placements
from distlab.folds.devices import Devices
from distlab.folds.evidence import Evidence
from distlab.folds.header import Header
from distlab.folds.loops import Loops
from distlab.folds.metrics import Metrics
from distlab.folds.placement import Placements
from distlab.folds.programs import Programs
from distlab.folds.reductions import Reductions
from distlab.folds.steps import Steps
from distlab.folds.timeline import Timeline, window

__all__ = [
    "Batches",
    "Captures",
    "Columns",
    "Devices",
    "Evidence",
    "Fold",
    "Folds",
    "Header",
    "Loops",
    "Metrics",
    "Placements",
    "Programs",
    "Reductions",
    "Steps",
    "Timeline",
    "compare",
    "part_of_batch",
    "part_of_captures",
    "part_of_devices",
    "part_of_placements",
    "window",
]


class Folds:
    """All folds of one run, fed from one cursor.

    One thread may feed it (`read`, `add`) while others look (`columns`,
    `batch`, `version`): a lock keeps them apart.

    Attributes:
      cursor: what to ask the source for next.
      lost: events that a ring dropped before this reader came for them. What
        the recording itself says it left out is the header's `not_recorded`.
      header, metrics, steps, batches, devices, captures, reductions, placement,
        loops, programs, evidence, timeline: the folds.
    """

    def __init__(self) -> None:
        self.cursor = 0
        self.lost = 0
        self.header = Header()
        self.metrics = Metrics()
        self.steps = Steps()
        self.batches = Batches()
        self.devices = Devices()
        self.captures = Captures()
        self.reductions = Reductions()
        self.placement = Placements()
        self.loops = Loops()
        self.programs = Programs()
        self.evidence = Evidence()
        self.timeline = Timeline()
        self._lock = threading.RLock()
        self._cache: dict[str, tuple[int, Columns]] = {}
        self._folds: dict[str, Fold] = {
            "header": self.header,
            "metrics": self.metrics,
            "steps": self.steps,
            "batches": self.batches,
            "devices": self.devices,
            "captures": self.captures,
            "reductions": self.reductions,
            "placement": self.placement,
            "loops": self.loops,
            "programs": self.programs,
            "evidence": self.evidence,
            "timeline": self.timeline,
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names that `columns` and `version` take."""
        return tuple(self._folds)

    def read(self, source: Source, limit: int = 10_000) -> int:
        """Takes the next events of a source.

        Args:
          source: a ring, a run file, or several of them.
          limit: most events taken at once.

        Returns:
          How many events were taken: `limit` when there may be more.
        """
        chunk = source.since(self.cursor, limit)
        with self._lock:
            self.cursor = chunk.cursor
            self.lost += chunk.lost
            self.add(chunk.events)
        return len(chunk.events)

    def add(self, events: Sequence[Event | Unknown]) -> None:
        """Gives events, oldest first, to the folds that want them."""
        known = [event for event in events if isinstance(event, Event)]
        with self._lock:
            for fold in self._folds.values():
                wanted = [event for event in known if type(event) in fold.KINDS]
                if wanted:
                    fold.add(wanted)

    def version(self, name: str) -> int:
        """Returns a number that rises when the columns of `name` changed."""
        return self._folds[name].version

    def columns(self, name: str) -> Columns:
        """Returns the columns of one fold, made once for each of its versions.

        Args:
          name: one of `names`.

        Returns:
          Columns that all callers share: read them, don't change them.
        """
        with self._lock:
            fold = self._folds[name]
            made = self._cache.get(name)
            if made is None or made[0] != fold.version:
                made = self._cache[name] = (fold.version, fold.columns())
            return made[1]

    def batch(self, number: int | None = None) -> Columns:
        """Returns one batch as the replicas got it, see `Batches.detail`.

        Args:
          number: which batch; None for the newest.
        """
        with self._lock:
            return self.batches.detail(number)
