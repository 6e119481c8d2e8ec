"""A loop whose devices wait for the program's own Python.

That is what passes outside of `run`, of the verbs that reduce, of the input, of reads of
variables and of `log`: a checkpoint, a metric computed on the host, a function that the program
compiled itself, the garbage collector. It is the bottleneck when it takes 60 % of the loop's time
and 2 ms a step, the longest pause left out, while no step is in flight for half of the time: a loop
whose devices are the bottleneck also waits where it reads a result, and then one is.

In a loop of less than a second some pauses are most of the time: there the samples of the program's
stack must have found half of it in the program's lines.

The line is the innermost one that takes half of that time in the samples. A line that leads to a
call of `run` is none: it takes all of the loop's time.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import numpy as np

from distlab.advice._shares import loop_begin, loop_steps
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.advice.host_transfers import VALUES
from distlab.events import Advice, OwnPython
from distlab.folds import EvidenceColumns, WorkerColumns

CAUSE: Final = "host_bound"

_SHARE: Final = 0.6
_LEAST_NS: Final = 2_000_000
_FEWEST_STEPS: Final = 20
_HALF: Final = 0.5
_LONG_NS: Final = 1_000_000_000
_SHORTEST_NS: Final = 200_000_000
_LEAST_SEEN_NS: Final = 100_000_000
_ACCOUNTED_NS: Final = 1_000_000_000
"""The recorder accounts for its cost so often."""
_INSIDE: Final = " > "
_FIND: Final = "Find the lines with a profiler (python -m cProfile)."
_REMEDY: Final = (
    "Save and evaluate less often, compute metrics inside the function that run executes, or take "
    "several steps in one call with dl.scan."
)
_COMPILING: Final = (
    "JAX compiles there again and again: call jax.jit once, outside of the loop, and keep the "
    "shapes of its arguments."
)
_IN_THREADS: Final = "ParameterServerStrategy"


def find(columns: EvidenceColumns, workers: WorkerColumns | None = None) -> list[Advice]:
    """Finds a loop that its own Python slows down, in columns of `folds.Evidence`."""
    steps = columns["steps"]
    count = len(steps["step"])
    names = [name for name, _ in columns["strategies"].values()]
    if count < _FEWEST_STEPS or any(name.startswith(_IN_THREADS) for name in names):
        return []  # the steps of several threads overlap
    called = loop_steps(columns)
    if not len(called):
        return []
    begin = loop_begin(columns)
    end = int(steps["dispatched_ns"][-1])
    if workers is None or len(workers["name"]) < 2:
        in_flight = _in_flight(columns)
    else:
        in_flight = _in_flight_of_workers(workers)
    own_times = _gaps([*_in_distlab(columns), *columns["pauses"]], begin, end)
    gaps = [stop - start for start, stop in own_times]
    length = sum(stop - start for start, stop in _gaps(columns["pauses"], begin, end))
    if length < _SHORTEST_NS or in_flight is None or in_flight >= _HALF:
        return []
    # The calls of `log` are the recording's cost, and have no times of their own.
    own, longest = max(0, sum(gaps) - _logging(columns, begin, length)), max(gaps, default=0)
    # One long pause, such as a checkpoint or a cell that waits for its user, is no rule.
    usual = own - longest
    # Values that the program makes for each replica must get to their devices: part of neither.
    if usual < _SHARE * (length - longest - _placing(columns)) or usual < _LEAST_NS * len(called):
        return []
    seen = sum(columns["own_python"].values())
    # Without a sample in the program's lines the loop is that of a library, such as Keras's fit.
    if not seen or (length < _LONG_NS and seen < _HALF * own):
        return []
    share, each = own / length, own / len(called)
    line = _busiest_line(columns)
    where = f", {percent_text(line.share)} of that at {line.source}" if line.source else ""
    return [
        new_advice(
            CAUSE,
            "loop",
            f"Between steps the program spends {percent_text(share)} of the time ({ms_text(each)} "
            f"a step) in Python{where}; the devices have work {percent_text(in_flight)} of the "
            "time.",
            _COMPILING if line.compiles else _REMEDY if line.source else f"{_FIND} {_REMEDY}",
            evidence={"share": share, "step_ms": each / 1e6, "in_flight_share": in_flight}
            | ({"line_share": line.share} if line.source else {}),
            page="steps",
            share=share,
            steps=called,
            source=line.source,
            saves_s=each / 1e9,
        )
    ]


class _Line(NamedTuple):
    """A line of the program."""

    source: str  # Its file and number; empty where no line takes most of the time
    share: float
    compiles: bool  # Whether JAX compiles there


def _busiest_line(columns: EvidenceColumns) -> _Line:
    spent: Counter[str] = Counter()
    for stack, ns in columns["own_python"].items():
        for place in _places(stack):
            spent[place] += ns
    total = sum(columns["own_python"].values())
    leading = {place for call in columns["run_calls"] for place in _places(call)}
    most = [place for place, ns in spent.items() if ns >= _HALF * total and place not in leading]
    if total < _LEAST_SEEN_NS or not most:
        return _Line("", 0.0, compiles=False)
    innermost = max(most, key=len)
    *_, source, last = ["", *innermost.split(_INSIDE)]
    compiles = last == OwnPython.COMPILES
    return _Line(source if compiles else last, spent[innermost] / total, compiles)


def _places(stack: str) -> list[str]:
    """Returns a stack's lines, each with those that lead to it."""
    return list(accumulate(stack.split(_INSIDE), lambda outer, line: f"{outer}{_INSIDE}{line}"))


def _placing(columns: EvidenceColumns) -> int:
    """Returns how long the program's own values for each replica were put on their devices."""
    copies = columns["copies"]
    own = np.array([what.startswith(VALUES) for what in copies["what"]], bool)
    inside = own & (copies["time_ns"] >= loop_begin(columns))
    return int(copies["duration_ns"][inside].sum())


def _logging(columns: EvidenceColumns, begin: int, length: int) -> int:
    """Returns how long calls of `log` took; the account ends up to a second before the loop."""
    costs = columns["costs"]
    inside = costs["start_ns"] >= begin - _ACCOUNTED_NS
    accounted = int((costs["time_ns"] - costs["start_ns"])[inside].sum())
    return int(costs["log_ns"][inside].sum()) * length // max(accounted, 1)


def _in_flight(columns: EvidenceColumns) -> float | None:
    """Returns the share of the time with a step in flight; None where too few were watched.

    A step's end is seen late where Python keeps its lock: it may end as soon as it usually does.
    """
    steps, ready = columns["steps"], columns["ready"]
    seen = {
        step: (max(times), late)
        for step, times, late in zip(
            ready["step"].tolist(), ready["ready_ns"], ready["resolution_ns"].tolist(), strict=True
        )
    }
    calls = [
        (called, following, *seen[step])
        for step, (called, following) in zip(
            steps["step"].tolist(), pairwise(steps["time_ns"].tolist()), strict=False
        )
        if step in seen
    ]
    # As of the loop's own time, the longest pause is left out.
    calls = sorted(calls, key=lambda one: one[1] - one[0])[:-1]
    usual = _usual_duration(columns)
    watched = sum(following - called for called, following, *_ in calls)
    if watched <= 0:
        return None
    worked = 0
    for called, following, end, late in calls:
        known = end if usual is None else max(end - late, min(end, called + usual))
        worked += max(0, min(known, following) - called)
    return worked / watched


def _in_flight_of_workers(workers: WorkerColumns) -> float | None:
    """Returns the share of a step for which devices have work that waits for no other worker.

    None where the program of any worker is no bottleneck: it may wait for another one.
    """
    step_ms = np.array(workers["step_ms"])
    if not (np.array(workers["own_ms"]) >= _SHARE * step_ms).all():
        return None
    shares = (np.array(workers["device_ms"]) / step_ms).tolist()
    return min((share for share in shares if share >= 0), default=None)


def _usual_duration(columns: EvidenceColumns) -> int | None:
    """Returns how long a step occupies its devices in the profiles; None without any."""
    return max(
        (
            max(map(sum, zip(one.compute_ns, one.waiting_ns, one.copy_ns, strict=True)))
            // one.steps
            for one in columns["captures"]
            if one.steps and one.compute_ns
        ),
        default=None,
    )


def _in_distlab(columns: EvidenceColumns) -> list[tuple[int, int]]:
    """Returns the times spent in distlab's calls."""
    steps, batches, copies = columns["steps"], columns["batches"], columns["copies"]
    spans = [
        (steps["time_ns"], steps["dispatched_ns"]),
        (batches["time_ns"] - batches["wait_ns"] - batches["transfer_ns"], batches["time_ns"]),
        (copies["time_ns"], copies["time_ns"] + copies["duration_ns"]),
    ]
    begins, ends = (np.concatenate(edge).tolist() for edge in zip(*spans, strict=True))
    return [*zip(begins, ends, strict=True), *_reducing(columns)]


def _reducing(columns: EvidenceColumns) -> list[tuple[int, int]]:
    """Returns the times of calls that combine values: each value has a share of its call's."""
    reductions = columns["reductions"]
    spent: Counter[tuple[int, int]] = Counter()
    for begin, call, duration in zip(
        *(reductions[name].tolist() for name in ("time_ns", "call", "duration_ns")), strict=True
    ):
        spent[begin, call] += duration
    return [(begin, begin + duration) for (begin, _), duration in spent.items()]


def _gaps(spans: list[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    """Returns the times from `begin` to `end` that are in no span."""
    gaps, until = [], begin
    for start, stop in sorted(spans):
        if start > until:
            gaps.append((until, min(start, end)))
        until = max(until, stop)
        if until >= end:
            return gaps
    return [*gaps, (until, end)]
