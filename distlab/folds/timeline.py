"""The calls of steps, and when each device finished them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import ClassVar, NamedTuple, TypedDict

import numpy as np

from distlab.events import (
    Capture,
    Compile,
    DeviceSample,
    Event,
    Run,
    Sharding,
    Step,
    StepReady,
    Strategy,
    Unknown,
)
from distlab.folds._fold import Clock, Fold, replica_names
from distlab.folds._series import Cells
from distlab.folds.arrays import Floats, Ints
from distlab.folds.device_part import MOST_ROWS, group_names, groups
from distlab.folds.devices import Computing

_MOST_SPANS = 2_000


class Rows:
    """The devices of one strategy, in at most 64 rows of one device or one group each."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.starts, self.sizes = groups(devices, None, MOST_ROWS)
        self.watched: deque[tuple[float, float]] = deque(maxlen=_MOST_SPANS)
        self.watched_to_s = 0.0

    def watch(self, begin_s: float, end_s: float) -> None:
        """Adds a watched window, or extends the one before when they touch."""
        self.watched_to_s = end_s
        if self.watched and begin_s <= self.watched[-1][1]:
            self.watched[-1] = (self.watched[-1][0], end_s)
        else:
            self.watched.append((begin_s, end_s))


_MOST_CELLS = 512
_FIRST_WIDTH_S = 1 / 512
_MOST_STEPS = 2_000
_MOST_STRATEGIES = 8
_OF_A_WINDOW = (Strategy, Compile, Step, StepReady, DeviceSample, Sharding)
_STEPS, _CALLS, _WAITS = "steps", "calls", "waits"


class TimelineColumns(TypedDict):
    """Columns of `Timeline`; times are in seconds since the run began."""

    now_s: float
    device: list[str]  #: Names of the rows
    devices: int
    group: int  #: How many devices share a row
    cell_start_s: float
    cell_s: float
    busy: Floats  #: `(cells, rows)`: share in flight of watched time; NaN unwatched
    computes: Floats  #: `(rows,)`: as in `Devices`
    watched: Floats  #: Share of each cell that was watched, 0 to 1
    calls: Floats  #: Share of each cell spent in calls of `run`
    waited: Floats  #: Share of each cell spent on waiting for a batch from the source
    steps: Ints  #: How many calls of `run` began in each cell
    step: Ints  #: Numbers of the newest 2,000 steps; here and below one entry for each
    begin_s: Floats
    called_s: Floats
    from_s: Floats  #: `(steps, rows)`: since when it was the oldest in flight
    ready_s: Floats  #: `(steps, rows)`: NaN where not watched
    exact_from_s: float  #: No step called later than this is missing in `step`
    watched_spans: Floats  #: Begins and ends of the newest watched windows, `(windows, 2)`
    waits: Floats  #: `(batches, 3)`: waiting began, waiting ended, on the devices
    batch: Ints
    step_count: int


class _Call(NamedTuple):
    """A call of `run`, in seconds since the run began."""

    begin_s: float
    end_s: float
    strategy: int
    compiled_s: float
    """When its program was there; its begin when it compiled none."""


class _Batch(NamedTuple):
    """A batch: waited for, then transferred; in seconds since the run began."""

    begin_s: float
    waited_s: float
    placed_s: float
    number: int


class Timeline(Fold[TimelineColumns]):
    """Steps over time: an overview of the whole run, and the newest steps exactly.

    The overview has up to 512 cells, which double in width when there are too many.
    Above 64 devices neighbours share a row, at most 64 rows: a row has the mean share
    of its devices, and is ready when the last of them is. The rows are those of the
    strategy that was watched last.

    A step is in flight on a device from the call of `run`, or when its program was compiled,
    until its results there are ready. Only watched steps and watched windows show that.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Capture, *_OF_A_WINDOW)

    def __init__(self) -> None:
        self._names: dict[int, list[str]] = {}
        self._begin(None, Cells(0.0, _FIRST_WIDTH_S, _MOST_CELLS, widen=True))

    def _begin(self, zero_ns: int | None, cells: Cells) -> None:
        """Forgets the run before, whose times count from another second 0."""
        self._clock = Clock()
        if zero_ns is not None:
            self._clock.start(zero_ns)
        self._cells = cells
        self._now_s = 0.0
        self._count = 0
        self._compiled_s = 0.0
        self._forgotten_s = 0.0
        self._calls: OrderedDict[int, _Call] = OrderedDict()
        self._ready: dict[int, Floats] = {}
        self._batches: deque[_Batch] = deque(maxlen=_MOST_STEPS)
        self._rows: OrderedDict[int, Rows] = OrderedDict()
        self._computing = Computing()

    def _add(self, event: Event) -> None:
        match event:
            case Step():
                self._add_step(event)
            case Compile():
                self._compiled_s = self._seconds(event.time_ns)
            case Sharding():
                self._add_batch(event)
            case StepReady():
                self._add_ready(event)
            case DeviceSample():
                self._add_sample(event)
            case Capture():
                self._computing.add(event)
            case Strategy():
                self._names[event.strategy] = event.devices
            case Run():
                self._begin(event.time_ns, Cells(0.0, _FIRST_WIDTH_S, _MOST_CELLS, widen=True))
            case _:
                pass

    def _seconds(self, time_ns: int) -> float:
        seconds = self._clock.seconds(time_ns)
        self._now_s = max(self._now_s, seconds)
        return seconds

    def _add_step(self, event: Step) -> None:
        begin_s, end_s = self._seconds(event.time_ns), self._seconds(event.dispatched_ns)
        inside = begin_s < self._compiled_s <= end_s
        compiled_s = self._compiled_s if inside else begin_s
        self._calls[event.step] = _Call(begin_s, end_s, event.strategy, compiled_s)
        self._count += 1
        place = self._cells.place(begin_s)
        if place >= 0:
            self._cells.of(_STEPS)[place] += 1
        self._cells.spread(_CALLS, begin_s, end_s, end_s - begin_s)
        if len(self._calls) > _MOST_STEPS:
            oldest, call = self._calls.popitem(last=False)
            self._ready.pop(oldest, None)
            self._forgotten_s = max(self._forgotten_s, call.begin_s)

    def _add_batch(self, event: Sharding) -> None:
        placed_s = self._seconds(event.time_ns)
        waited_s = max(0.0, placed_s - event.transfer_ns / 1e9)
        begin_s = max(0.0, waited_s - event.wait_ns / 1e9)
        self._cells.spread(_WAITS, begin_s, waited_s, waited_s - begin_s)
        self._batches.append(_Batch(begin_s, waited_s, placed_s, event.batch))

    def _add_ready(self, event: StepReady) -> None:
        ready_s = np.array(
            [self._seconds(time_ns) if time_ns else np.nan for time_ns in event.ready_ns]
        )
        if event.step in self._calls and len(ready_s):
            rows = self._rows_of(event.strategy, len(ready_s))
            self._ready[event.step] = np.fmax.reduceat(ready_s, rows.starts)

    def _add_sample(self, event: DeviceSample) -> None:
        start_s, end_s = self._seconds(event.start_ns), self._seconds(event.time_ns)
        if end_s <= start_s or not event.busy_ns:
            return
        rows = self._rows_of(event.strategy, len(event.busy_ns))
        shares = np.minimum(np.array(event.busy_ns) / 1e9 / (end_s - start_s), 1.0)
        begin_s = max(start_s, rows.watched_to_s)
        if end_s <= begin_s:
            return
        means = np.add.reduceat(shares, rows.starts) / rows.sizes
        name = (event.strategy, rows.devices)
        self._cells.of(name, len(rows.starts) + 1)
        amounts = np.append(means, 1.0) * (end_s - begin_s)  # the last lane: time watched
        self._cells.spread(name, begin_s, end_s, amounts)
        rows.watch(begin_s, end_s)

    def _rows_of(self, strategy: int, devices: int) -> Rows:
        """Returns a strategy's rows, and makes it the one watched last."""
        rows = self._rows.get(strategy)
        if rows is None or rows.devices != devices:
            rows = self._rows[strategy] = Rows(devices)
            if len(self._rows) > _MOST_STRATEGIES:
                oldest, dropped = self._rows.popitem(last=False)
                self._cells.drop((oldest, dropped.devices))
        self._rows.move_to_end(strategy)
        return rows

    def columns(self) -> TimelineColumns:
        """Returns the timeline of all events so far."""
        newest = next(reversed(self._rows), None)
        rows = Rows(0) if newest is None else self._rows[newest]
        names = [] if newest is None else self._names.get(newest, [])
        cells, used = self._cells, self._used_cells()
        busy, watched = self._busy((newest, rows.devices), len(rows.starts))
        begin_s = np.array([call.begin_s for call in self._calls.values()])
        compiled_s = np.array([call.compiled_s for call in self._calls.values()])
        ready_s = self._ready_times(newest, len(rows.starts))
        return {
            "now_s": self._now_s,
            "device": group_names(replica_names(names, rows.devices), rows.starts, rows.sizes),
            "devices": rows.devices,
            "group": int(rows.sizes[0]) if rows.devices else 1,
            "cell_start_s": cells.start_s,
            "cell_s": cells.width_s,
            "busy": busy,
            "computes": np.add.reduceat(self._computing.of(newest, rows.devices), rows.starts)
            / rows.sizes,
            "watched": watched,
            "calls": np.minimum(cells.of(_CALLS)[:used] / cells.width_s, 1),
            "waited": np.minimum(cells.of(_WAITS)[:used] / cells.width_s, 1),
            "steps": cells.of(_STEPS)[:used].astype(np.int64),
            "step": np.array(list(self._calls), np.int64),
            "begin_s": begin_s,
            "called_s": np.array([call.end_s for call in self._calls.values()]),
            "from_s": _oldest_since(compiled_s, ready_s),
            "ready_s": ready_s,
            "exact_from_s": self._forgotten_s,
            "watched_spans": np.array(rows.watched).reshape(-1, 2),
            "waits": np.array([batch[:3] for batch in self._batches]).reshape(-1, 3),
            "batch": np.array([batch.number for batch in self._batches], np.int64),
            "step_count": self._count,
        }

    def _used_cells(self) -> int:
        cells = self._cells
        if self._now_s >= cells.start_s + cells.most * cells.width_s:
            return cells.most
        return max(0, int((self._now_s - cells.start_s) // cells.width_s) + 1)

    def _busy(self, name: object, rows: int) -> tuple[Floats, Floats]:
        """Returns the busy shares `(cells, rows)`, and which share of each cell was watched."""
        width_s = self._cells.width_s
        kept = self._cells.of(name, rows + 1)[: self._used_cells()]
        watched = kept[:, -1:]
        seen = watched > 1e-3 * width_s
        shares = np.where(seen, kept[:, :-1] / np.where(seen, watched, 1), np.nan)
        return shares, np.minimum(watched[:, 0] / width_s, 1)

    def _ready_times(self, strategy: int | None, rows: int) -> Floats:
        ready_s = np.full((len(self._calls), rows), np.nan)
        for place, (step, call) in enumerate(self._calls.items()):
            ready = self._ready.get(step)
            if ready is not None and call.strategy == strategy and len(ready) == rows:
                ready_s[place] = ready
        return ready_s


def _oldest_since(begin_s: Floats, ready_s: Floats) -> Floats:
    """Returns since when each step was the oldest known step in flight."""
    none = np.full((1, ready_s.shape[1]), -np.inf)
    before = np.fmax.accumulate(np.vstack([none, ready_s]))[:-1]
    return np.minimum(np.maximum(begin_s[:, None], before), ready_s)


def window(
    events: Iterable[Event | Unknown],
    zero_ns: int,
    start_s: float,
    end_s: float,
    *,
    cells: int = _MOST_CELLS,
) -> TimelineColumns:
    """Returns the timeline of a part of a run, in more detail than that of the whole run.

    Args:
      events: Events of this part, oldest first, such as those that
        `Run.events(start=..., end=...)` yields. They begin a little before `start_s`, to
        include the calls of steps in flight then, and contain the run's `Strategy`
        events, which name its devices.
      zero_ns: Monotonic time of second 0: `time_ns` of the header.
      start_s: When the part begins, in seconds since the run began.
      end_s: When the part ends.
      cells: How many cells of time to return, an even number.

    Returns:
      The columns of `Timeline` with cells of this part, and with its newest 2,000 steps.

    Example:
      >>> from distlab.events import Step
      >>> from distlab.folds import window
      >>> calls = [Step(time_ns=n * 10**9, step=n, program=0, strategy=0,
      ...               dispatched_ns=n * 10**9 + 10**8, examples=64) for n in range(60)]
      >>> columns = window(calls, 0, 10.0, 14.0, cells=4)
      >>> columns["steps"].tolist(), columns["calls"].round(3).tolist()
      ([1, 1, 1, 1], [0.1, 0.1, 0.1, 0.1])
    """
    fold = Timeline()
    fold._begin(zero_ns, Cells(start_s, (end_s - start_s) / cells, cells, widen=False))
    end_ns = zero_ns + round(end_s * 1e9)
    fold.add(
        [
            event
            for event in events
            if isinstance(event, _OF_A_WINDOW)
            and (event.time_ns <= end_ns or not isinstance(event, Step))
        ]
    )
    return {**fold.columns(), "now_s": end_s}
