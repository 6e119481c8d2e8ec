"""The run's speed and its progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict

import numpy as np

from distlab.events import DeviceSample, Event, Metric, Run, RunEnd, Step, StepReady
from distlab.folds._fold import Clock
from distlab.folds.arrays import Floats
from distlab.folds.joining.members import StepPart

_BIN_SECONDS = 0.25
_MOST_BINS = 480
_RECENT_SECONDS = 2.0
_RECENT_STEPS = 8


class StepColumns(TypedDict):
    """Columns of `Steps`.

    Rates are per second. They are None before the second step.

    Attributes:
      time_s: Middles of the bins, in seconds since the run began. The newest,
        unfinished bin is left out.
      steps_per_s: Steps per second in each bin.
      examples_per_s: Examples per second in each bin.
      bin_s: Width of a bin in seconds.
      steps: How many steps the newest run took.
      examples: How many examples they had.
      total: How many steps the run plans, None when it did not state them.
      progress: `steps` as a share of `total`, 0 to 1, or None.
      rate: Steps over the last 2 s, or over the time of the last 8 steps if longer.
      examples_rate: Examples over the same time.
      mean_rate: Steps from the first step to the last.
      mean_examples_rate: Examples from the first step to the last.
      eta_s: Seconds until `total` at `rate`, or None.
      since_last_s: Seconds from the newest step to the newest event, None before
        the first step.
      elapsed_s: Seconds from the run's begin to the newest event.
    """

    time_s: Floats
    steps_per_s: Floats
    examples_per_s: Floats
    bin_s: float
    steps: int
    examples: int
    total: int | None
    progress: float | None
    rate: float | None
    examples_rate: float | None
    mean_rate: float | None
    mean_examples_rate: float | None
    eta_s: float | None
    since_last_s: float | None
    elapsed_s: float


class Steps:
    """Steps and examples counted in equal bins of time.

    A step counts when `run` was called for it; the devices may be up to 16 steps
    behind. The bins are 0.25 s wide and double in width when there are too many.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (
        Run, RunEnd, Step, StepPart, StepReady, Metric, DeviceSample,
    )  # fmt: skip

    def __init__(self) -> None:
        self.version = 0
        self._begin(None)

    def _begin(self, run: Run | None) -> None:
        """Forgets the run before: rates, progress and times are of one run."""
        self._clock = Clock()
        self._total = run.total_steps if run else None
        if run:
            self._clock.start(run.time_ns)
        self._steps = [0]
        self._examples = [0]
        self._bin = _BIN_SECONDS
        self._count = 0
        self._example_count = 0
        self._first = -1
        self._first_examples = 0
        self._first_s = 0.0
        self._last_s = 0.0
        self._now_s = 0.0

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            if isinstance(event, Run):
                self._begin(event)
                continue
            seconds = self._clock.seconds(event.time_ns)
            self._advance(seconds)
            if isinstance(event, Step):
                self._step(seconds, event)
            elif isinstance(event, StepPart):  # of a further process: the step counts once
                self._count_examples(seconds, event)
        self.version += bool(events)

    def _advance(self, seconds: float) -> None:
        self._now_s = max(self._now_s, seconds)
        last = int(self._now_s / self._bin)
        while last >= _MOST_BINS:
            self._steps = _pairs(self._steps)
            self._examples = _pairs(self._examples)
            self._bin *= 2
            last = int(self._now_s / self._bin)
        missing = last + 1 - len(self._steps)
        self._steps.extend([0] * missing)
        self._examples.extend([0] * missing)

    def _step(self, seconds: float, event: Step) -> None:
        self._steps[int(seconds / self._bin)] += 1
        if not self._count:
            self._first_s = seconds
        self._count += 1
        self._count_examples(seconds, event)
        self._last_s = max(self._last_s, seconds)

    def _count_examples(self, seconds: float, event: Step | StepPart) -> None:
        self._examples[int(seconds / self._bin)] += event.examples
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
        steps = examples = bins = 0
        for place in range(len(self._steps) - 2, int(self._first_s / self._bin), -1):
            steps += self._steps[place]
            examples += self._examples[place]
            bins += 1
            if bins * self._bin >= _RECENT_SECONDS and steps >= _RECENT_STEPS:
                break
        if steps < 2:
            return self._mean_rates()
        return steps / (bins * self._bin), examples / (bins * self._bin)

    def columns(self) -> StepColumns:
        """Returns the counts of all events so far."""
        complete = len(self._steps) - 1
        rate, examples_rate = self._recent_rates()
        mean_rate, mean_examples_rate = self._mean_rates()
        left = None if self._total is None else max(0, self._total - self._count)
        return {
            "time_s": (np.arange(complete, dtype=np.float64) + 0.5) * self._bin,
            "steps_per_s": np.array(self._steps[:complete], np.float64) / self._bin,
            "examples_per_s": np.array(self._examples[:complete], np.float64) / self._bin,
            "bin_s": self._bin,
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
            "elapsed_s": self._now_s,
        }


def _pairs(counts: list[int]) -> list[int]:
    whole = [*counts, 0] if len(counts) % 2 else counts
    return [left + right for left, right in zip(whole[::2], whole[1::2], strict=True)]
