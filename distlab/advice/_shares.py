"""Shares of the loop's time."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from distlab.events import Capture
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Flags, Ints

_MOST_PROFILED: Final = 0.5
_FEWEST_CALLS: Final = 8
_COMPILES: Final = 10
"""The factor by which a call that compiles a program of its own is longer than usual."""


def loop_begin(columns: EvidenceColumns) -> int:
    """Returns the monotonic time in nanoseconds from which on the loop's time counts.

    The first step's compilation is over by then, and all events of the loop are kept.
    """
    return max(int(columns["steps"]["dispatched_ns"][0]), columns["since_ns"])


def loop_steps(columns: EvidenceColumns) -> Ints:
    """Returns the numbers of the steps that a share of the loop's time is about.

    They were called after `loop_begin`.
    """
    steps = columns["steps"]
    return steps["step"][steps["time_ns"] >= loop_begin(columns)]


def steps_between(columns: EvidenceColumns, begin_ns: float, end_ns: float) -> Ints:
    """Returns the numbers of the steps that were called in a part of the run."""
    times = columns["steps"]["time_ns"]
    return columns["steps"]["step"][(times >= begin_ns) & (times <= end_ns)]


def loop_share(
    columns: EvidenceColumns, time_ns: Ints, duration_ns: Ints, *, compiled: bool = False
) -> float:
    """Returns the share of the loop's time that calls took.

    Only the time counts of which all events are kept. Compilations are not the loop: a short
    recording would be mostly them.
    """
    steps = columns["steps"]
    begin = loop_begin(columns)
    inside = time_ns >= begin
    if not inside.any():
        return 0.0
    end = max(int(steps["dispatched_ns"][-1]), int((time_ns + duration_ns)[inside].max()))
    compiling = sum(
        event.trace_ns + event.compile_ns for event in columns["compiles"] if event.time_ns > begin
    )
    spent = duration_ns[inside]
    once = _compiling_call(spent) if compiled else 0
    return (float(spent.sum()) - once) / max(end - begin - compiling - once, 1)


def _compiling_call(spent: Ints) -> int:
    """Returns the nanoseconds of the call that compiled what the others used; 0 for none."""
    longest = int(spent.max())
    found = len(spent) >= _FEWEST_CALLS and longest > _COMPILES * float(np.median(spent))
    return longest if found else 0


def saved_at_most(columns: EvidenceColumns, seconds: float) -> float:
    """Returns what less work of the program's own thread saves, of so many seconds a step.

    Devices work meanwhile: a step can't become shorter than they compute, as far as is known
    from a profile.
    """
    usual = step_seconds(columns)
    return seconds if usual is None else min(seconds, usual.whole - usual.computing)


class StepSeconds(NamedTuple):
    """The duration of a step of the loop."""

    whole: float  # Seconds from one step to the next
    computing: float  # Those of them in which a device computes


def step_seconds(columns: EvidenceColumns) -> StepSeconds | None:
    """Returns what a step of the loop takes; None without a profile, or with several strategies."""
    steps = columns["steps"]
    captures = [one for one in columns["captures"] if one.steps and one.compute_ns]
    begin, end = loop_begin(columns), int(steps["time_ns"][-1])
    count = int((steps["time_ns"] > begin).sum())
    if not captures or count < 1 or len(set(steps["strategy"].tolist())) > 1:
        return None
    compiling = sum(
        one.trace_ns + one.compile_ns for one in columns["compiles"] if begin < one.time_ns < end
    )
    whole = max(end - begin - compiling, 0) / count / 1e9
    # Steps that a profile sees dispatched are not those that it sees computed: many may be in
    # flight. Its share of the time is right.
    return StepSeconds(whole, whole * float(np.median([_computing_share(one) for one in captures])))


def _computing_share(capture: Capture) -> float:
    """Returns the share of a profile in which any device computes.

    Devices that share a machine's cores compute one after another as well as together.
    """
    devices = [np.frombuffer(data, "<i8").reshape(-1, 3) for data in capture.spans]
    length = capture.time_ns - capture.start_ns
    if capture.spans_left_out or not devices:
        return max(capture.compute_ns) / max(length, 1)
    begin, span, activity = np.concatenate(devices).T
    computes = activity == 0
    order = np.argsort(begin[computes])
    begins, ends = begin[computes][order], (begin + span)[computes][order]
    before = np.concatenate([[0], np.maximum.accumulate(ends)[:-1]]) if len(ends) else ends
    busy = np.maximum(ends - np.maximum(begins, before), 0).sum()
    return min(1.0, float(busy) / max(length, 1))


def seconds_a_step(columns: EvidenceColumns, time_ns: Ints, duration_ns: Ints) -> float:
    """Returns the seconds that calls took in the loop, for each of its steps.

    The longest call does not count: the first of its kind compiles. While a profile is taken
    everything takes longer, so calls and steps of that time count only where most are in it.
    """
    begin = loop_begin(columns)
    steps = columns["steps"]["time_ns"][columns["steps"]["dispatched_ns"] >= begin]
    inside = time_ns >= begin
    profiled = _profiled(columns, steps)
    if profiled.sum() < _MOST_PROFILED * len(steps):
        steps, inside = steps[~profiled], inside & ~_profiled(columns, time_ns)
    spent = duration_ns[inside]
    longest = int(spent.max()) if len(spent) >= _FEWEST_CALLS else 0
    return float(spent.sum() - longest) / 1e9 / max(len(steps), 1)


def _profiled(columns: EvidenceColumns, time_ns: Ints) -> Flags:
    found = np.zeros(len(time_ns), bool)
    for one in columns["captures"]:
        found |= (time_ns >= one.start_ns) & (time_ns <= one.time_ns)
    return found
