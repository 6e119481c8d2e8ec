"""Shares of the loop's time."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from distlab.events import Capture
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Floats, Ints

_FEWEST: Final = 8


def loop_begin(columns: EvidenceColumns) -> int:
    """Returns since when the loop's time counts: after the first step's call, which compiles."""
    return max(int(columns["steps"]["dispatched_ns"][0]), columns["since_ns"])


def loop_steps(columns: EvidenceColumns) -> Ints:
    """Returns the numbers of the steps that were called after `loop_begin`."""
    steps = columns["steps"]
    return steps["step"][steps["time_ns"] >= loop_begin(columns)]


def steps_between(columns: EvidenceColumns, begin_ns: float, end_ns: float) -> Ints:
    """Returns the numbers of the steps that were called in a part of the run."""
    times = columns["steps"]["time_ns"]
    return columns["steps"]["step"][(times >= begin_ns) & (times <= end_ns)]


class Spent(NamedTuple):
    """The time that calls took in the loop."""

    share: float
    seconds: float  # In each step, as is usual


def spent_in(columns: EvidenceColumns, time_ns: Ints, duration_ns: Ints) -> Spent:
    """Returns the time that calls took in the loop, from step to step.

    The step with the longest calls does not count: the first call of a kind compiles. Nor do the
    compilations of steps.
    """
    steps, begin = columns["steps"], loop_begin(columns)
    inside = time_ns >= begin
    if not inside.any():
        return Spent(0.0, 0.0)
    end = max(int(steps["dispatched_ns"][-1]), int((time_ns + duration_ns)[inside].max()))
    edges = np.sort([begin, *steps["time_ns"][steps["time_ns"] > begin], end])
    periods = periods_between(columns, edges)
    spent = np.zeros(len(periods))
    places = np.searchsorted(edges[1:-1], time_ns[inside], side="right")
    np.add.at(spent, places, duration_ns[inside])
    if len(spent) >= _FEWEST:
        longest = int(spent.argmax())
        spent, periods = np.delete(spent, longest), np.delete(periods, longest)
    some = spent[spent > 0]
    usual = float(np.median(some)) * len(some) / len(spent) if len(some) else 0.0
    return Spent(float(spent.sum()) / max(float(periods.sum()), 1.0), usual / 1e9)


def periods_between(columns: EvidenceColumns, edges: Ints) -> Floats:
    """Returns the nanoseconds from each time to the next, without compilations."""
    periods = np.diff(edges).astype(float)
    for one in columns["compiles"]:
        after = int(np.searchsorted(edges, one.time_ns))
        if 0 < after < len(edges):
            periods[after - 1] -= one.trace_ns + one.compile_ns
    return periods


def saved_at_most(columns: EvidenceColumns, seconds: float) -> float:
    """Returns what less work of the program saves a step: not what devices compute meanwhile."""
    usual = step_seconds(columns)
    return seconds if usual is None else min(seconds, usual[0] - usual[1])


def period_seconds(columns: EvidenceColumns) -> float:
    """Returns the time from step to step of the loop; infinite where that is not known."""
    times = columns["steps"]["time_ns"]
    begin = loop_begin(columns) if len(times) else 0
    count = int((times > begin).sum())
    return (int(times[-1]) - begin) / count / 1e9 if count else float("inf")


def step_seconds(columns: EvidenceColumns) -> tuple[float, float] | None:
    """Returns what a step of the loop takes, and those seconds in which a device computes.

    None without a profile, or with several strategies.
    """
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
    return whole, whole * float(np.median([_computing_share(one) for one in captures]))


def _computing_share(capture: Capture) -> float:
    """Returns the share of a profile in which any device computes."""
    devices = [np.frombuffer(data, "<i8").reshape(-1, 3) for data in capture.spans]
    length = capture.time_ns - capture.start_ns
    if capture.spans_left_out or not devices:
        return max(capture.compute_ns) / max(length, 1)
    # Devices that share a machine's cores compute one after another as well as together.
    begin, span, activity = np.concatenate(devices).T
    computes = activity == 0
    order = np.argsort(begin[computes])
    begins, ends = begin[computes][order], (begin + span)[computes][order]
    before = np.concatenate([[0], np.maximum.accumulate(ends)[:-1]]) if len(ends) else ends
    busy = np.maximum(ends - np.maximum(begins, before), 0).sum()
    return min(1.0, float(busy) / max(length, 1))
