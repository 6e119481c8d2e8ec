"""A loop whose devices wait for the program's own Python.

That is what passes outside of `run`, of the verbs that reduce, of the input and of reads of
variables: a checkpoint, a metric computed on the host, a function that the program compiled
itself, the garbage collector. It is the bottleneck when it takes 60 % of the loop's time and
2 ms a step, while no step is in flight for half of the time: a loop whose devices are the
bottleneck also waits where it reads a result, and then one is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from distlab.advice._shares import loop_begin
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns

CAUSE: Final = "host_bound"

_SHARE: Final = 0.6
_IN_FLIGHT: Final = 0.5
_LEAST_NS: Final = 2_000_000
_FEWEST_STEPS: Final = 20
_FEWEST_WATCHED: Final = 8
_SHORTEST_NS: Final = 1_000_000_000
_IN_THREADS: Final = "ParameterServerStrategy"


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds a loop that its own Python slows down, in columns of `folds.Evidence`."""
    steps = columns["steps"]
    count = len(steps["step"])
    names = [name for name, _ in columns["strategies"].values()]
    if count < _FEWEST_STEPS or any(name.startswith(_IN_THREADS) for name in names):
        return []  # the steps of several threads overlap
    begin = loop_begin(columns)
    end = int(steps["dispatched_ns"][-1])
    in_flight = _in_flight(columns)
    length = end - begin - _overlap(columns["pauses"], begin, end)
    if length < _SHORTEST_NS or in_flight is None or in_flight >= _IN_FLIGHT:
        return []
    own = length - _overlap(_in_distlab(columns), begin, end)
    share, each = own / length, own / count
    if share < _SHARE or each < _LEAST_NS:
        return []
    return [
        new_advice(
            CAUSE,
            "loop",
            f"{percent_text(share)} of the loop's time, {ms_text(each)} a step, passes in the "
            f"program's own Python; a step is in flight {percent_text(in_flight)} of it.",
            "Find the lines with a profiler (python -m cProfile). Save and evaluate less often, "
            "compute metrics inside the function that run executes, or take several steps in one "
            "call with dl.scan.",
            evidence={"share": share, "step_ms": each / 1e6, "in_flight_share": in_flight},
            page="steps",
            share=share,
            steps=steps["step"],
            saves_s=each / 1e9,
        )
    ]


def _in_flight(columns: EvidenceColumns) -> float | None:
    """Returns the share of the time with a step in flight; None where too few were watched."""
    steps, ready = columns["steps"], columns["ready"]
    done = {
        step: max(times)
        for step, times in zip(ready["step"].tolist(), ready["ready_ns"], strict=True)
    }
    watched = worked = 0
    count = 0
    calls = zip(steps["step"].tolist(), pairwise(steps["time_ns"].tolist()), strict=False)
    for step, (called, following) in calls:
        if step in done:
            watched += following - called
            worked += max(0, min(done[step], following) - called)
            count += 1
    return worked / watched if count >= _FEWEST_WATCHED and watched > 0 else None


def _in_distlab(columns: EvidenceColumns) -> list[tuple[int, int]]:
    """Returns the times spent in distlab's calls."""
    steps, batches = columns["steps"], columns["batches"]
    spans = [(steps["time_ns"], steps["dispatched_ns"])]
    spans += [
        (batches["time_ns"] - batches["wait_ns"] - batches["transfer_ns"], batches["time_ns"])
    ]
    spans += [
        (table["time_ns"], table["time_ns"] + table["duration_ns"])
        for table in (columns["reductions"], columns["copies"])
    ]
    begins, ends = (np.concatenate(edge).tolist() for edge in zip(*spans, strict=True))
    return list(zip(begins, ends, strict=True))


def _overlap(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """Returns how much of the time from `begin` to `end` is in one span or more."""
    covered, until = 0, begin
    for start, stop in sorted(spans):
        fresh = min(stop, end) - max(start, until)
        if fresh > 0:
            covered += fresh
            until = min(stop, end)
    return covered
