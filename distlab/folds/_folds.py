"""All folds of one run, fed from one cursor."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import repeat
from typing import Literal, TypeAlias, get_args, overload

from distlab.events import Envelope, Event, Source, Unknown
from distlab.folds._fold import Columns, Fold
from distlab.folds.batches import BatchColumns, BatchDetail, Batches
from distlab.folds.coordination import Coordination, CoordinationColumns
from distlab.folds.devices import CaptureColumns, Captures, DeviceColumns, Devices
from distlab.folds.evidence import Evidence, EvidenceColumns
from distlab.folds.header import Header, HeaderColumns, LoopColumns, Loops
from distlab.folds.joining import Join
from distlab.folds.metrics import MetricColumns, Metrics
from distlab.folds.placement import PlacementColumns, Placements
from distlab.folds.programs import ProgramColumns, Programs
from distlab.folds.reductions import ReductionColumns, Reductions
from distlab.folds.steps import StepColumns, Steps
from distlab.folds.timeline import Timeline, TimelineColumns
from distlab.folds.workers import WorkerColumns, Workers

FoldName: TypeAlias = Literal[
    "header",
    "metrics",
    "steps",
    "batches",
    "devices",
    "captures",
    "reductions",
    "placement",
    "loops",
    "programs",
    "evidence",
    "timeline",
    "workers",
    "coordination",
]
"""Names of the folds of `Folds`."""


class Folds:
    """All folds of one run, fed from one cursor.

    One thread may feed it (`read`, `add`) while others read it (`columns`, `batch`,
    `version`): a lock protects the folds.

    Attributes:
      cursor: Position of the next event in the source.
      lost: How many events a ring had dropped before this reader asked for them. What
        the recording itself left out is the header's `not_recorded`.
      evidence: The fold that advice is made from.

    Example:
      >>> from distlab.events import Metric
      >>> from distlab.folds import Folds
      >>> folds = Folds()
      >>> folds.add([Metric(time_ns=step, step=step, values={"loss": 1 / (1 + step)})
      ...            for step in range(4)])
      >>> folds.columns("metrics")["value"][0].round(2).tolist()
      [1.0, 0.5, 0.33, 0.25]
    """

    def __init__(self) -> None:
        self.cursor = 0
        self.lost = 0
        self.evidence = Evidence()
        self._batches = Batches()
        self._captures = Captures()
        self._workers = Workers()
        self._join = Join()
        self._lock = threading.RLock()
        self._cache: dict[FoldName, tuple[int, Columns]] = {}
        self._folds: dict[FoldName, Fold[Columns]] = {
            "header": Header(),
            "metrics": Metrics(),
            "steps": Steps(),
            "batches": self._batches,
            "devices": Devices(),
            "captures": self._captures,
            "reductions": Reductions(),
            "placement": Placements(),
            "loops": Loops(),
            "programs": Programs(),
            "evidence": self.evidence,
            "timeline": Timeline(),
            "coordination": Coordination(),
        }

    @property
    def names(self) -> tuple[FoldName, ...]:
        """The names that `columns` and `version` accept."""
        return get_args(FoldName)

    def read(self, source: Source, limit: int = 10_000) -> int:
        """Reads the next events of a source.

        Args:
          source: A ring, a run file, or several run files.
          limit: The most events to read.

        Returns:
          How many events it read: `limit` when there may be more.
        """
        chunk = source.since(self.cursor, limit)
        with self._lock:
            self.cursor = chunk.cursor
            self.lost += chunk.lost
            self.add(chunk.events, chunk.processes)
        return len(chunk.events)

    def add(self, events: Sequence[Event | Unknown], processes: Sequence[int] = (0,)) -> None:
        """Adds events, oldest first, to the folds that accept their kinds.

        Args:
          events: The events.
          processes: The process of each event; a single one stands for all.
        """
        each = len(processes) == len(events)
        known = [
            Envelope(process, event)
            for process, event in zip(
                processes if each else repeat(processes[0]), events, strict=False
            )
            if isinstance(event, Event)
        ]
        with self._lock:
            self._workers.add(known)
            joined = self._join.add(known)
            for fold in self._folds.values():
                wanted = [event for event in joined if type(event) in fold.KINDS]
                if wanted:
                    fold.add(wanted)

    def version(self, name: FoldName) -> int:
        """Returns a number that rises when the columns of `name` change."""
        return self._workers.version if name == "workers" else self._folds[name].version

    @overload
    def columns(self, name: Literal["header"]) -> HeaderColumns: ...
    @overload
    def columns(self, name: Literal["metrics"]) -> MetricColumns: ...
    @overload
    def columns(self, name: Literal["steps"]) -> StepColumns: ...
    @overload
    def columns(self, name: Literal["batches"]) -> BatchColumns: ...
    @overload
    def columns(self, name: Literal["devices"]) -> DeviceColumns: ...
    @overload
    def columns(self, name: Literal["captures"]) -> CaptureColumns: ...
    @overload
    def columns(self, name: Literal["reductions"]) -> ReductionColumns: ...
    @overload
    def columns(self, name: Literal["placement"]) -> PlacementColumns: ...
    @overload
    def columns(self, name: Literal["loops"]) -> LoopColumns: ...
    @overload
    def columns(self, name: Literal["programs"]) -> ProgramColumns: ...
    @overload
    def columns(self, name: Literal["evidence"]) -> EvidenceColumns: ...
    @overload
    def columns(self, name: Literal["timeline"]) -> TimelineColumns: ...
    @overload
    def columns(self, name: Literal["workers"]) -> WorkerColumns: ...
    @overload
    def columns(self, name: Literal["coordination"]) -> CoordinationColumns: ...
    @overload
    def columns(self, name: FoldName) -> Columns: ...

    def columns(self, name: FoldName) -> Columns:
        """Returns the columns of one fold, computed once for each of its versions.

        Args:
          name: One of `names`.

        Returns:
          Columns that all callers share: they must not change them.
        """
        with self._lock:
            fold: Fold[Columns] | Workers
            fold = self._workers if name == "workers" else self._folds[name]
            made = self._cache.get(name)
            if made is None or made[0] != fold.version:
                made = self._cache[name] = (fold.version, fold.columns())
            return made[1]

    def batch(self, number: int | None = None, dataset: int | None = None) -> BatchDetail | None:
        """Returns one batch as the replicas received it, None before the first one.

        Args:
          number: Number of the batch, see `Batches.detail`; None for the newest.
          dataset: Number of the dataset to which it belongs; None for any.
        """
        with self._lock:
            return self._batches.detail(number, dataset)

    def capture(self, number: int | None = None) -> CaptureColumns:
        """Returns one capture, see `Captures.columns`; None for the one shown first.

        Args:
          number: Its number; one that is not kept stands for None.
        """
        with self._lock:
            return self._captures.columns(number)

    def newest_of_main(self) -> BatchDetail | None:
        """Returns the newest batch of the dataset with the most batches, as after an evaluation."""
        with self._lock:
            return self._batches.detail(None, self._batches.main)
