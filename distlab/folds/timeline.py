"""When each step was called and when each device was done with it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from distlab.errors import ArgumentValueError
from distlab.events import DeviceSample, Event, Run, Sharding, Step, StepReady, Strategy, Unknown
from distlab.folds._cells import Cells, Floats
from distlab.folds._fold import Columns
from distlab.folds._rows import Rows

_MOST_CELLS = 512
_FIRST_WIDTH_S = 1 / 512
_MOST_STEPS = 2_000
_MOST_STRATEGIES = 8
_OF_A_WINDOW = (Strategy, Step, StepReady, DeviceSample, Sharding)
_STEPS, _CALLS, _WAITS = "steps", "calls", "waits"


class _Call(NamedTuple):
    """A call of `run`, in seconds since the run began."""

    begin_s: float
    end_s: float
    strategy: int
    examples: int


class _Batch(NamedTuple):
    """A batch: waited for, then put on the devices; in seconds since the run began."""

    begin_s: float
    waited_s: float
    placed_s: float
    number: int


class Timeline:
    """The steps over time: an overview of the whole run, and the newest ones exactly.

    The overview has up to 512 equal cells of time, which double in width when
    there are too many. Above 64 devices neighbours share a row, at most 64 rows:
    a row's share is the mean of its devices, and it is ready when the last of
    them is. Rows are those of the strategy that was watched last.

    A step is in flight on a device from the call of `run` until its results
    there are ready. That is known only of watched steps, and of watched windows.

    Columns:
      zero_ns: monotonic time of second 0, None before the first event.
      now_s: seconds from the run's begin to its newest event.
      device: list of names of the rows.
      devices: how many devices there are; `group`: how many share a row.
      cell_start_s, cell_s: where the first cell begins, and the cells' width.
      busy: float64 array `(cells, rows)`: share of the watched time in which a
        step was in flight, 0 to 1; NaN in cells in which nothing was watched.
      watched: float64 array `(cells,)`: how much of each cell was watched, 0 to 1.
      calls, waited: float64 arrays `(cells,)`: share of each cell spent in calls
        of `run`, and waiting for a batch from the source.
      steps: int64 array `(cells,)`: calls of `run` that began in each cell.
      step: int64 array of the newest 2,000 steps' numbers.
      begin_s, called_s: float64 arrays: when `run` was called, and had handed over.
      examples: int64 array.
      from_s, ready_s: float64 arrays `(steps, rows)`: when the step's results were
        ready, and since when it was the oldest known step in flight there (when it
        was called, or the watched step before was ready); NaN when not watched.
      exact_from_s: no step that was called after this is missing in `step`.
      watched_spans: float64 array `(n, 2)`: the newest watched windows.
      waits: float64 array `(n, 3)`: the newest batches: wait begins, wait ends,
        on the devices. `batch`: int64 array of their numbers.
      step_count: steps called in all.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (
        *(Run, Strategy, Step, StepReady, DeviceSample, Sharding),
    )

    def __init__(self) -> None:
        self.version = 0
        self._names: dict[int, list[str]] = {}
        self._begin(None, Cells(0.0, _FIRST_WIDTH_S, _MOST_CELLS, widen=True))

    def _begin(self, zero_ns: int | None, cells: Cells) -> None:
        """Forgets the run before: its times have another zero."""
        self._zero_ns = zero_ns
        self._cells = cells
        self._now_s = 0.0
        self._count = 0
        self._forgotten_s = 0.0
        self._calls: OrderedDict[int, _Call] = OrderedDict()
        self._ready: dict[int, Floats] = {}
        self._batches: deque[_Batch] = deque(maxlen=_MOST_STEPS)
        self._rows: OrderedDict[int, Rows] = OrderedDict()

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            match event:
                case Step():
                    self._take_step(event)
                case Sharding():
                    self._take_batch(event)
                case StepReady():
                    self._take_ready(event)
                case DeviceSample():
                    self._take_sample(event)
                case Strategy():
                    self._names[event.strategy] = event.devices
                case Run():
                    self._begin(event.time_ns, Cells(0.0, _FIRST_WIDTH_S, _MOST_CELLS, widen=True))
                case _:
                    pass
        self.version += bool(events)

    def _seconds(self, time_ns: int) -> float:
        if self._zero_ns is None:
            self._zero_ns = time_ns
        seconds = max(0, time_ns - self._zero_ns) / 1e9
        self._now_s = max(self._now_s, seconds)
        return seconds

    def _take_step(self, event: Step) -> None:
        begin_s, end_s = self._seconds(event.time_ns), self._seconds(event.dispatched_ns)
        self._calls[event.step] = _Call(begin_s, end_s, event.strategy, event.examples)
        self._count += 1
        place = self._cells.place(begin_s)
        if place >= 0:
            self._cells.of(_STEPS)[place] += 1
        self._cells.spread(_CALLS, begin_s, end_s, end_s - begin_s)
        if len(self._calls) > _MOST_STEPS:
            oldest, call = self._calls.popitem(last=False)
            self._ready.pop(oldest, None)
            self._forgotten_s = max(self._forgotten_s, call.begin_s)

    def _take_batch(self, event: Sharding) -> None:
        placed_s = self._seconds(event.time_ns)
        waited_s = max(0.0, placed_s - event.transfer_ns / 1e9)
        begin_s = max(0.0, waited_s - event.wait_ns / 1e9)
        self._cells.spread(_WAITS, begin_s, waited_s, waited_s - begin_s)
        self._batches.append(_Batch(begin_s, waited_s, placed_s, event.batch))

    def _take_ready(self, event: StepReady) -> None:
        ready_s = np.array([self._seconds(time_ns) for time_ns in event.ready_ns])
        if event.step in self._calls and len(ready_s):
            rows = self._rows_of(event.strategy, len(ready_s))
            self._ready[event.step] = np.maximum.reduceat(ready_s, rows.starts)

    def _take_sample(self, event: DeviceSample) -> None:
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
        """Returns a strategy's rows, which are now those of the newest strategy."""
        rows = self._rows.get(strategy)
        if rows is None or rows.devices != devices:
            rows = self._rows[strategy] = Rows(devices)
            if len(self._rows) > _MOST_STRATEGIES:
                oldest, dropped = self._rows.popitem(last=False)
                self._cells.drop((oldest, dropped.devices))
        self._rows.move_to_end(strategy)
        return rows

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        newest = next(reversed(self._rows), None)
        rows = Rows(0) if newest is None else self._rows[newest]
        names = [] if newest is None else self._names.get(newest, [])
        batches = np.array([batch[:3] for batch in self._batches]).reshape(-1, 3)
        return {
            "zero_ns": self._zero_ns,
            "now_s": self._now_s,
            "device": rows.names(names),
            "devices": rows.devices,
            "group": rows.group,
            **self._cell_columns((newest, rows.devices), len(rows.starts)),
            **self._step_columns(newest, len(rows.starts)),
            "exact_from_s": self._forgotten_s,
            "watched_spans": np.array(rows.watched).reshape(-1, 2),
            "waits": batches,
            "batch": np.array([batch.number for batch in self._batches], np.int64),
            "step_count": self._count,
        }

    def _cell_columns(self, name: object, rows: int) -> Columns:
        cells = self._cells
        used = cells.most
        if self._now_s < cells.start_s + used * cells.width_s:
            used = max(0, int((self._now_s - cells.start_s) // cells.width_s) + 1)
        kept = cells.of(name, rows + 1)[:used]
        watched = kept[:, -1:]
        seen = watched > 1e-3 * cells.width_s
        return {
            "cell_start_s": cells.start_s,
            "cell_s": cells.width_s,
            "busy": np.where(seen, kept[:, :-1] / np.where(seen, watched, 1), np.nan),
            "watched": np.minimum(watched[:, 0] / cells.width_s, 1),
            "calls": np.minimum(cells.of(_CALLS)[:used] / cells.width_s, 1),
            "waited": np.minimum(cells.of(_WAITS)[:used] / cells.width_s, 1),
            "steps": cells.of(_STEPS)[:used].astype(np.int64),
        }

    def _step_columns(self, strategy: int | None, rows: int) -> Columns:
        calls = self._calls
        ready_s = np.full((len(calls), rows), np.nan)
        for place, (step, call) in enumerate(calls.items()):
            ready = self._ready.get(step)
            if ready is not None and call.strategy == strategy and len(ready) == rows:
                ready_s[place] = ready
        begin_s = np.array([call.begin_s for call in calls.values()])
        before = np.fmax.accumulate(np.vstack([np.full((1, rows), -np.inf), ready_s]))[:-1]
        from_s = np.minimum(np.maximum(begin_s[:, None], before), ready_s)
        return {
            "step": np.array(list(calls), np.int64),
            "begin_s": begin_s,
            "called_s": np.array([call.end_s for call in calls.values()]),
            "examples": np.array([call.examples for call in calls.values()], np.int64),
            "from_s": from_s,
            "ready_s": ready_s,
        }


def window(
    events: Iterable[Event | Unknown],
    zero_ns: int,
    start_s: float,
    end_s: float,
    *,
    cells: int = _MOST_CELLS,
) -> Columns:
    """Returns the timeline of a part of a run, for looking at it closely.

    Args:
      events: those of this part, oldest first, such as `Run.events(start=..., end=...)`
        gives them. Begin a little before `start_s`, so that the calls of steps that
        were in flight then are among them; the run's `Strategy` events name its devices.
      zero_ns: monotonic time of second 0: `zero_ns` of `Timeline`.
      start_s: seconds since the run began.
      end_s: where the part ends.
      cells: how many cells of time there are, an even number.

    Returns:
      The columns of `Timeline`, whose cells are those of this part; the newest
      2,000 of its steps are there exactly.

    Raises:
      ArgumentValueError: `end_s` is not after `start_s`, or `cells` is not even.
    """
    if not start_s < end_s:
        raise ArgumentValueError(
            f"end_s must be after start_s, got {start_s!r} to {end_s!r}. Give seconds since the "
            "run began."
        )
    if cells < 2 or cells % 2:
        raise ArgumentValueError(f"cells must be an even number from 2 on, got {cells!r}.")
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
