"""The evidence that advice is made from: the last events of each kind, as columns."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypedDict, TypeVar

import msgspec
import numpy as np

from distlab.events import (
    Capture,
    Compile,
    CopiesCompared,
    Copy,
    DeviceSample,
    Event,
    Loop,
    Lost,
    Metric,
    NotFinite,
    OwnPython,
    Placement,
    Preview,
    RecorderCost,
    Reduction,
    Run,
    Sharding,
    Step,
    StepReady,
    Strategy,
)
from distlab.folds._fold import Fold, hints_of, ints

E = TypeVar("E", bound=Event)


Table: TypeAlias = dict[str, Any]
"""The fields of events by name: whole numbers as arrays, others as lists."""

_MOST_EVENTS: Final = 5_000
"""Most events of a kind that are kept: the last ones."""

_WITH_ALL_DEVICES: Final = (StepReady, Sharding)
_OF_THE_LOOP: Final = (Step, Sharding, Reduction, Copy)
_MOST_NUMBERS: Final = 640_000
"""Most numbers that are kept of kinds with one number for each device."""

_MOST_PAUSES: Final = 1_000
_MOST_NAMES: Final = 1_000
_MOST_LABELS: Final = 50_000
_MOST_FIRST: Final = 500
_MOST_FIRST_BYTES: Final = 4 << 20
_FIRST_BYTES: Final = 500
"""Bytes of a first batch without its lists."""

_MOST: Final[dict[type[Event], int]] = {
    **dict.fromkeys((Step, StepReady, Sharding, Reduction, Copy, RecorderCost), _MOST_EVENTS),
    Compile: 1_000,
    Capture: 16,
}


class NotFiniteMetric(NamedTuple):
    """The values of a metric since it is NaN or infinite."""

    step: int  # The step of the first one
    last_step: int  # The step of the last one
    values: int
    before: int = 0  # The longest such series before, which ended with a finite value


class Compared(NamedTuple):
    """Comparisons of the replicas' copies of one state."""

    strategy: int
    first: CopiesCompared | None  # The first comparison that found a difference; None before one
    last: CopiesCompared  # The last comparison
    number: int
    met: bool  # Whether copies that differed were found equal later


class Labels(NamedTuple):
    """The labels of a dataset's examples."""

    of_examples: dict[int, str]  # By position in the source
    of_batches: dict[tuple[int, int], list[str]]  # By epoch and batch, without positions


class FirstBatch(NamedTuple):
    """One of a dataset's first batches."""

    batch: Sharding
    program: int  # Of the step that followed


class EvidenceColumns(TypedDict):
    """Columns of `Evidence`; tables have the last 5,000 events of a kind, oldest first."""

    begin_ns: int  #: When the recording began; programs may be older
    since_ns: int  #: From when on all events of the loop are kept
    simulated: bool  #: Whether the devices share one machine's cores
    strategies: dict[int, tuple[str, list[str]]]  #: `(class name, device names)`
    strategies_made: dict[int, str]  #: The lines that made them
    meshes: list[int]  #: Those of them that are meshes of observed functions
    several: list[int]  #: Those of them whose replicas have several devices
    steps: Table
    ready: Table  #: On more than 128 devices fewer
    batches: Table  #: On more than 128 devices fewer
    reductions: Table
    copies: Table
    costs: Table
    compiles: list[Compile]  #: The last 1,000
    steps_of: dict[int, int]  #: All steps of the run, by program
    captures: list[Capture]  #: The last 16
    placements: list[Placement]  #: When variables held the most memory
    memory: dict[int, list[int]]  #: Bytes on each device, where reported
    pauses: list[tuple[int, int]]  #: Of controlled loops, `(begin_ns, end_ns)`
    not_finite: dict[str, NotFiniteMetric]  #: Metrics whose last value is not finite
    not_finite_results: list[NotFinite]  #: Functions whose last results are not
    labels: dict[int, Labels]  #: Of each dataset's first examples
    first_batches: dict[int, list[FirstBatch]]  #: Of each dataset's first epoch, at most 500
    copies_compared: dict[tuple[int, str], Compared]  #: By program and subject
    own_python: dict[str, int]  #: Stacks to nanoseconds
    run_calls: list[str]  #: The stacks at which `run` was called, some of them
    lost: int  #: Events not recorded


class Evidence(Fold[EvidenceColumns]):
    """The last events of the kinds that advice is made from."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (
        *(Run, Strategy, Placement, Sharding, Compile, Step, StepReady),
        *(Reduction, Copy, Capture, DeviceSample, RecorderCost, Lost, Loop, Metric),
        *(CopiesCompared, NotFinite, Preview, OwnPython),
    )

    def __init__(self) -> None:
        self._begin_ns = 0
        self._simulated = False
        self._strategies: dict[int, tuple[str, list[str]]] = {}
        self._strategies_made: dict[int, str] = {}
        self._meshes: set[int] = set()
        self._several: set[int] = set()
        self._placed: dict[int, Placement] = {}
        self._placed_bytes = 0
        self._most_placed: list[Placement] = []
        self._most_placed_bytes = 0
        self._memory: dict[int, list[int]] = {}
        self._paused_ns: dict[int, int] = {}
        self._pauses: deque[tuple[int, int]] = deque(maxlen=_MOST_PAUSES)
        self._not_finite: dict[str, NotFiniteMetric] = {}
        self._ended: dict[str, int] = {}
        self._not_finite_results: dict[tuple[int, str], NotFinite] = {}
        self._compared: dict[tuple[int, str], Compared] = {}
        self._labels: dict[int, Labels] = {}
        self._labelled = 0
        self._first_batches: dict[int, list[FirstBatch]] = {}
        self._first_bytes = 0
        self._divided: Sharding | None = None
        self._own_python: Counter[str] = Counter()
        self._run_calls: set[str] = set()
        self._steps_of: Counter[int] = Counter()
        self._lost = 0
        self._kept: dict[type[Event], deque[Event]] = {
            kind: deque(maxlen=most) for kind, most in _MOST.items()
        }

    def _add(self, event: Event) -> None:
        kept = self._kept.get(type(event))
        if isinstance(event, Sharding) and event.mesh:  # advice asks for the sizes of all parts
            event = msgspec.structs.replace(event, sizes=event.parts)
        if isinstance(event, Step):
            self._steps_of[event.program] += 1
        if kept is not None:
            kept.append(event)
            self._note_first(event)
        elif isinstance(event, OwnPython):
            self._add_own_python(event)
        else:
            self._update(event)

    @property
    def last_cost(self) -> RecorderCost | None:
        """The newest account of the recording's cost, None before the first."""
        costs = self._kept[RecorderCost]
        newest = costs[-1] if costs else None
        return newest if isinstance(newest, RecorderCost) else None

    def _update(self, event: Event) -> None:
        match event:
            case DeviceSample(memory_bytes=memory) if memory is not None:
                self._memory[event.strategy] = memory
            case Loop():
                self._loop(event)
            case Metric() | NotFinite():
                self._numbers(event)
            case Preview():
                self._label(event)
            case CopiesCompared():
                self._compare(event)
            case Placement():
                self._place(event)
            case Strategy():
                self._strategies[event.strategy] = (event.name, event.devices)
                self._strategies_made[event.strategy] = event.source
                self._meshes |= {event.strategy} if event.form == "mesh" else set()
                several = len(event.replicas) < len(event.devices)
                self._several |= {event.strategy} if several else set()
                self._limit(len(event.devices))
            case Run():
                self._begin_ns = self._begin_ns or event.time_ns
                self._simulated = any(device.simulated for device in event.devices)
            case Lost():
                self._lost += event.count
            case _:
                pass

    def _loop(self, event: Loop) -> None:
        if event.state == "paused":
            self._paused_ns.setdefault(event.loop, event.time_ns)
        elif event.loop in self._paused_ns:
            self._pauses.append((self._paused_ns.pop(event.loop), event.time_ns))

    def _numbers(self, event: Metric | NotFinite) -> None:
        if isinstance(event, NotFinite):
            self._result(event)
            return
        for name, value in event.values.items():
            since = self._not_finite.get(name)
            if math.isfinite(value):
                if since is not None:
                    self._ended[name] = max(since.values, since.before)
                    del self._not_finite[name]
            elif since is not None:
                values = since.values + 1
                self._not_finite[name] = since._replace(last_step=event.step, values=values)
            elif len(self._not_finite) < _MOST_NAMES:
                before = self._ended.get(name, 0)
                self._not_finite[name] = NotFiniteMetric(event.step, event.step, 1, before)

    def _result(self, event: NotFinite) -> None:
        """Notes a function's results; of several processes the one where they began counts."""
        function = event.strategy, event.function
        known = self._not_finite_results.get(function)
        if not event.steps:
            self._not_finite_results.pop(function, None)
        elif known is None or event.step < known.step:
            self._not_finite_results[function] = event

    def _add_own_python(self, event: OwnPython) -> None:
        for stack, spent in event.stacks.items():
            if stack in self._own_python or len(self._own_python) < _MOST_NAMES:
                self._own_python[stack] += spent
        if len(self._run_calls) < _MOST_NAMES:
            self._run_calls.update(event.calls)

    def _label(self, event: Preview) -> None:
        if not event.labels or self._labelled >= _MOST_LABELS:
            return
        self._labelled += len(event.labels)
        known = self._labels.setdefault(event.dataset, Labels({}, {}))
        if event.batch is not None:
            known.of_batches[event.epoch, event.batch] = event.labels
            return
        positions = np.frombuffer(event.indices, "<i8").tolist()
        known.of_examples.update(zip(positions, event.labels, strict=False))

    def _note_first(self, event: Event) -> None:
        """Keeps a dataset's first batches: in a long run those left in memory have no labels."""
        if isinstance(event, Sharding):
            self._divided = event
        elif isinstance(event, Step) and (batch := self._divided) is not None:
            self._divided = None
            first = self._first_batches.get(batch.dataset, [])
            size = _FIRST_BYTES + 8 * len(batch.sizes) + len(batch.indices or b"")
            room = self._first_bytes + size <= _MOST_FIRST_BYTES and len(first) < _MOST_FIRST
            if room and (not first or batch.epoch == first[0].batch.epoch):
                self._first_bytes += size
                first.append(FirstBatch(batch, event.program))
                self._first_batches[batch.dataset] = first

    def _compare(self, event: CopiesCompared) -> None:
        key = event.program, event.subject
        known = self._compared.get(key)
        first = known.first if known is not None else None
        met = (known is not None and known.met) or (first is not None and not event.differing)
        if first is None and event.differing:
            first = event
        if known is not None or len(self._compared) < _MOST_NAMES:
            number = 1 if known is None else known.number + 1
            self._compared[key] = Compared(event.strategy, first, event, number, met)

    def _place(self, event: Placement) -> None:
        """Adds a variable, or removes one; a free of the largest state notes it first."""
        if event.action == "free" and self._placed_bytes > self._most_placed_bytes:
            self._most_placed_bytes = self._placed_bytes
            self._most_placed = list(self._placed.values())
        before = self._placed.pop(event.array, None)
        self._placed_bytes -= 0 if before is None else sum(before.bytes_per_device)
        if event.action == "place":
            self._placed[event.array] = event
            self._placed_bytes += sum(event.bytes_per_device)

    def _since_ns(self) -> int:
        """Returns the latest time before which an event of the loop was dropped."""
        full = [kept for kind in _OF_THE_LOOP if len(kept := self._kept[kind]) == kept.maxlen]
        return max((kept[0].time_ns for kept in full), default=self._begin_ns)

    def _limit(self, devices: int) -> None:
        """Keeps fewer of the events that grow with the number of devices."""
        most = max(1, _MOST_NUMBERS // max(1, devices))
        for kind in _WITH_ALL_DEVICES:
            kept = self._kept[kind]
            self._kept[kind] = deque(kept, maxlen=min(most, kept.maxlen or _MOST_EVENTS))

    def _table(self, kind: type[Event]) -> Table:
        rows = self._kept[kind]
        columns = {name: [getattr(row, name) for row in rows] for name in kind.__struct_fields__}
        whole = [name for name, hint in hints_of(kind).items() if hint is int]
        return columns | {name: ints(columns[name]) for name in whole}

    def _events(self, kind: type[E]) -> list[E]:
        return [event for event in self._kept[kind] if isinstance(event, kind)]

    def columns(self) -> EvidenceColumns:
        """Returns the evidence of all events so far."""
        return {
            "begin_ns": self._begin_ns,
            "since_ns": self._since_ns(),
            "simulated": self._simulated,
            "strategies": dict(self._strategies),
            "strategies_made": dict(self._strategies_made),
            "meshes": sorted(self._meshes),
            "several": sorted(self._several),
            "steps": self._table(Step),
            "ready": self._table(StepReady),
            "batches": self._table(Sharding),
            "reductions": self._table(Reduction),
            "copies": self._table(Copy),
            "costs": self._table(RecorderCost),
            "compiles": self._events(Compile),
            "steps_of": dict(self._steps_of),
            "captures": self._events(Capture),
            "placements": self._most_placed
            if self._most_placed_bytes > self._placed_bytes
            else list(self._placed.values()),
            "memory": dict(self._memory),
            "pauses": list(self._pauses),
            "not_finite": dict(self._not_finite),
            "not_finite_results": list(self._not_finite_results.values()),
            "labels": dict(self._labels),
            "first_batches": {name: list(first) for name, first in self._first_batches.items()},
            "copies_compared": dict(self._compared),
            "own_python": dict(self._own_python),
            "run_calls": sorted(self._run_calls),
            "lost": self._lost,
        }
