"""The run's speed and its progress."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np

from distlab.events import DeviceSample, Event, Loop, Metric, Run, RunEnd, Step, StepReady
from distlab.folds._fold import Clock, Fold
from distlab.folds._series import Cells
from distlab.folds.arrays import Floats
from distlab.folds.joining.members import StepPart

_BIN_SECONDS = 0.25
_MOST_BINS = 480
_RECENT_SECONDS = 2.0
_RECENT_STEPS = 8

Halt: TypeAlias = Literal["", "paused", "stopped"]


class StepColumns(TypedDict):
    """Columns of `Steps`.

    Rates are per second. They are None before the second step.
    """

    time_s: Floats  #: Middles of finished bins, since the run began
    steps_per_s: Floats
    examples_per_s: Floats
    bin_s: float
    steps: int  #: How many steps the newest run took
    examples: int
    total: int | None  #: How many steps the run plans, None when it did not state them
    progress: float | None  #: `steps` as a share of `total`, 0 to 1, or None
    rate: float | None  #: Steps over the last 2 s, or over the time of the last 8 steps if longer
    examples_rate: float | None
    mean_rate: float | None  #: Steps from the first step to the last
    mean_examples_rate: float | None
    eta_s: float | None  #: Seconds until `total` at `rate`, or None
    since_last_s: float | None  #: From the newest step to the newest event
    elapsed_s: float  #: Seconds from the run's begin to its end, or the newest event
    halted: Halt  #: What a controlled loop is, where no step came since


class Steps(Fold[StepColumns]):
    """Steps and examples counted in equal bins of time.

    A step counts when `run` was called for it; the devices may be up to 16 steps
    behind. The bins are 0.25 s wide, and wider where there are too many or few steps in one.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (
        Run, RunEnd, Step, StepPart, StepReady, Metric, DeviceSample, Loop,
    )  # fmt: skip

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, run: Run | None) -> None:
        """Forgets the run before: rates, progress and times are of one run."""
        self._clock = Clock()
        self._total = run.total_steps if run else None
        if run:
            self._clock.start(run.time_ns)
        self._cells = Cells(0.0, _BIN_SECONDS, _MOST_BINS, widen=True)
        self._count = 0
        self._example_count = 0
        self._first = -1
        self._first_examples = 0
        self._first_s = 0.0
        self._last_s = 0.0
        self._now_s = 0.0
        self._end_s: float | None = None
        self._halted: Halt = ""

    def _add(self, event: Event) -> None:
        if isinstance(event, Run):
            self._begin(event)
            return
        if isinstance(event, RunEnd):
            self._end_s = self._clock.seconds(event.time_ns)
        seconds = self._clock.seconds(event.time_ns)
        self._now_s = max(self._now_s, seconds)
        self._cells.place(self._now_s)  # wide enough, also for the steps before
        if isinstance(event, Step):
            self._step(seconds, event)
        elif isinstance(event, StepPart):  # of a further process: the step counts once
            self._count_examples(seconds, event)
        elif isinstance(event, Loop):
            self._halted = event.state if event.state in ("paused", "stopped") else ""

    def _step(self, seconds: float, event: Step) -> None:
        self._cells.of("steps")[self._cells.place(seconds)] += 1
        if not self._count:
            self._first_s = seconds
        self._count += 1
        self._halted = ""
        self._count_examples(seconds, event)
        self._last_s = max(self._last_s, seconds)

    def _count_examples(self, seconds: float, event: Step | StepPart) -> None:
        self._cells.of("examples")[self._cells.place(seconds)] += event.examples
        self._example_count += event.examples
        if self._first < 0:
            self._first = event.step
        if event.step == self._first:
            self._first_examples += event.examples

    def _mean_rates(self) -> tuple[float | None, float | None]:
        span = self._last_s - self._first_s
        if self._count < 2 or span <= 0:
            return None, None
        return (self._count - 1) / span, (self._example_count - self._first_examples) / span

    def _recent_rates(self) -> tuple[float | None, float | None]:
        """Returns the rates over the newest finished bins: 2 s of them, or those of 8 steps."""
        width_s = self._cells.width_s
        whole = slice(int(self._first_s // width_s) + 1, self._finished())
        steps, examples = (
            self._cells.of(name)[whole][::-1].cumsum() for name in ("steps", "examples")
        )
        seconds = np.arange(1, len(steps) + 1) * width_s
        enough = np.flatnonzero((seconds >= _RECENT_SECONDS) & (steps >= _RECENT_STEPS))
        last = int(enough[0]) if len(enough) else len(steps) - 1
        if last < 0 or steps[last] < 2:
            return self._mean_rates()
        return float(steps[last] / seconds[last]), float(examples[last] / seconds[last])

    def _finished(self) -> int:
        """Returns how many bins of the run are over."""
        end_s = self._now_s if self._end_s is None else self._end_s
        return min(int(end_s // self._cells.width_s), _MOST_BINS)

    def columns(self) -> StepColumns:
        """Returns the counts of all events so far."""
        complete, width_s = self._finished(), self._cells.width_s
        rate, examples_rate = self._recent_rates()
        mean_rate, mean_examples_rate = self._mean_rates()
        each = 1  # few steps in a bin would be spikes
        while (mean_rate or 0) * width_s * each < _RECENT_STEPS and 8 * each <= complete:
            each *= 2
        wide = slice(complete // each * each)
        steps, examples = (
            self._cells.of(name)[wide].reshape(-1, each).mean(1) / width_s
            for name in ("steps", "examples")
        )
        left = None if self._total is None else max(0, self._total - self._count)
        return {
            "time_s": (np.arange(len(steps), dtype=np.float64) + 0.5) * each * width_s,
            "steps_per_s": steps,
            "examples_per_s": examples,
            "bin_s": each * width_s,
            "steps": self._count,
            "examples": self._example_count,
            "total": self._total,
            "progress": min(1.0, self._count / self._total) if self._total else None,
            "rate": rate,
            "examples_rate": examples_rate,
            "mean_rate": mean_rate,
            "mean_examples_rate": mean_examples_rate,
            "eta_s": left / rate if left is not None and rate else None,
            "since_last_s": self._now_s - self._last_s if self._count else None,
            "elapsed_s": self._now_s if self._end_s is None else self._end_s,
            "halted": self._halted,
        }


_STALLED_SECONDS: Final = 5.0
_STALLED_STEPS: Final = 3


class Pace(NamedTuple):
    """The speed of a live run now; rates are per second."""

    rate: float | None
    examples_rate: float | None
    eta_s: float | None  # None for a run that takes no steps now
    idle_s: float | None  # since the newest step
    elapsed_s: float
    halted: Halt | Literal["stalled"]


def pace_of(steps: StepColumns, now_s: float | None = None) -> Pace:
    """Returns the speed of a live run, `now_s` seconds after its begin; None: at its newest event.

    It is 0 while a loop is paused or stopped, and when no step came for 5 s and three steps' time.
    """
    rate, idle_s = steps["rate"], steps["since_last_s"]
    further_s = max(0.0, (now_s or 0.0) - steps["elapsed_s"])
    elapsed_s = steps["elapsed_s"] + further_s
    if idle_s is not None:
        idle_s += further_s
    patience_s = max(_STALLED_SECONDS, _STALLED_STEPS / rate if rate else 0.0)
    if steps["halted"]:
        return Pace(0.0, 0.0, None, idle_s, elapsed_s, steps["halted"])
    if idle_s is not None and idle_s > patience_s:
        return Pace(0.0, 0.0, None, idle_s, elapsed_s, "stalled")
    return Pace(rate, steps["examples_rate"], steps["eta_s"], idle_s, elapsed_s, "")
