"""Shares of the loop's time."""

from __future__ import annotations

import numpy as np

from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Ints


def loop_begin(columns: EvidenceColumns) -> int:
    """Returns the monotonic time in nanoseconds from which on the loop's time counts.

    The first step's compilation is over by then, and all events of the loop are kept.
    """
    return max(int(columns["steps"]["dispatched_ns"][0]), columns["since_ns"])


def loop_share(columns: EvidenceColumns, time_ns: Ints, duration_ns: Ints) -> float:
    """Returns the share of the loop's time that calls took.

    Only the time counts of which all events are kept. Compilations are not the loop: a short
    recording would be mostly them.

    Args:
      columns: The evidence, with one step or more.
      time_ns: Monotonic times at which the calls began.
      duration_ns: Nanoseconds that each took.
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
    return float(duration_ns[inside].sum()) / max(end - begin - compiling, 1)


def saved_at_most(columns: EvidenceColumns, seconds: float) -> float:
    """Returns what less work of the program's own thread saves, of so many seconds a step.

    Devices work meanwhile: a step can't become shorter than they compute, as far as a profile
    tells.

    Args:
      columns: The evidence, with one step or more.
      seconds: The seconds that the remedy takes from each step of the thread.
    """
    steps = columns["steps"]
    captures = [one for one in columns["captures"] if one.steps and one.compute_ns]
    begin, end = loop_begin(columns), int(steps["time_ns"][-1])
    count = int((steps["time_ns"] > begin).sum())
    if not captures or count < 1 or len(set(steps["strategy"].tolist())) > 1:
        return seconds
    compiling = sum(
        one.trace_ns + one.compile_ns for one in columns["compiles"] if begin < one.time_ns < end
    )
    computing = float(np.median([max(one.compute_ns) / one.steps for one in captures]))
    return min(seconds, max(0.0, ((end - begin - compiling) / count - computing) / 1e9))


def seconds_a_step(columns: EvidenceColumns, time_ns: Ints, duration_ns: Ints) -> float:
    """Returns the seconds that calls took in the loop, for each of its steps.

    Args:
      columns: The evidence, with one step or more.
      time_ns: Monotonic times at which the calls began.
      duration_ns: Nanoseconds that each took.
    """
    begin = loop_begin(columns)
    steps = int((columns["steps"]["dispatched_ns"] >= begin).sum())
    return float(duration_ns[time_ns >= begin].sum()) / 1e9 / max(steps, 1)
