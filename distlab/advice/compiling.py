"""A run that mostly compiles.

Each function compiles once or twice: for full batches, and for the last one. A run is short of
steps, not of programs, where that is most of its time. It compiles too much where further
programs of its functions take half of the time after the first step, and of its second half
as well, so that it does not end with a warm-up. Functions that are compiled again in each step
or two are `recompilation`; here are those that a new strategy, new variables or a new size
compiles again every some steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import numpy as np

from distlab.advice import recompiling
from distlab.advice._columns import line_of_most
from distlab.advice._texts import new_advice, percent_text
from distlab.events import Advice, Compile
from distlab.folds import EvidenceColumns

CAUSE: Final = "mostly_compiling"

_SHARE: Final = 0.5
_USUAL_PROGRAMS: Final = 2
_FEWEST_FURTHER: Final = 4
_FEWEST_STRATEGIES: Final = 3
_LEAST_NS: Final = 500_000_000


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds a run that mostly compiles, in columns of `folds.Evidence`."""
    steps = columns["steps"]
    if not len(steps["step"]):
        return []
    further = _further(columns)
    begin, middle = int(steps["dispatched_ns"][0]), int(np.median(steps["dispatched_ns"]))
    end = max([int(steps["dispatched_ns"][-1]), *(one.time_ns for one in further)])
    late = [one for one in further if one.time_ns > middle]
    spent = _spent(further)
    if len(further) < _FEWEST_FURTHER or spent < _LEAST_NS:
        return []
    share = spent / max(end - begin, 1)
    if share < _SHARE or _spent(late) < _SHARE * (end - middle):
        return []
    by_function: dict[tuple[str, str], list[Compile]] = defaultdict(list)
    for one in further:
        by_function[one.function, one.source].append(one)
    (function, _), own = max(by_function.items(), key=lambda item: _spent(item[1]))
    why, remedy = _reason(own)
    compiling = _spent([one for one in columns["compiles"] if one.time_ns > begin])
    share = min(compiling / max(end - begin, 1), 1.0)
    return [
        new_advice(
            CAUSE,
            f"function {function}",
            f"{percent_text(share)} of the time after step {int(steps['step'][0])} "
            f"passes with compiling: {function} was compiled {len(own)} times beyond its first "
            f"two programs, {why}.",
            remedy,
            evidence={
                "share": share,
                "compiling_s": compiling / 1e9,
                "programs": len(further),
                "steps": len(steps["step"]),
            },
            page="events",
            share=share,
            steps=steps["step"],
            time_ns=own[-1].time_ns,
            source=line_of_most(
                [one.called or one.source for one in own],
                [one.trace_ns + one.compile_ns for one in own],
            ),
            saves_s=spent / 1e9 / len(steps["step"]),
        )
    ]


def _further(columns: EvidenceColumns) -> list[Compile]:
    """Returns the programs beyond two of each function, but those that `recompilation` names."""
    named = {advice.source for advice in recompiling.find(columns)}
    begin = int(columns["steps"]["dispatched_ns"][0])
    number: Counter[tuple[str, str]] = Counter()
    further = []
    for one in columns["compiles"]:
        if one.mode == "eager" or one.time_ns < columns["begin_ns"] or one.source in named:
            continue
        number[one.function, one.source] += 1
        if number[one.function, one.source] > _USUAL_PROGRAMS and one.time_ns > begin:
            further.append(one)
    return further


def _spent(programs: list[Compile]) -> int:
    return sum(one.trace_ns + one.compile_ns for one in programs)


def _reason(programs: list[Compile]) -> tuple[str, str]:
    """Returns why a function was compiled so often, and what to do."""
    strategies = len({one.strategy for one in programs})
    if strategies >= _FEWEST_STRATEGIES and _USUAL_PROGRAMS * strategies >= len(programs):
        return (
            "since each strategy compiles its own programs",
            (
                "Make the strategy once, assign new first values to its variables, and pass other "
                "changing values, such as a learning rate, as arguments."
            ),
        )
    if sum(one.cause == "new function" for one in programs) > len(programs) / 2:
        return (
            "since it is a new function each time, or uses new variables",
            "Define the function once, pass what changes, and assign new values to variables.",
        )
    argument, change = recompiling.changing(programs)
    return (
        f"since {argument or 'the structure of its arguments'} changes ({change})",
        "Group by length into a few sizes, or pad to one: each shape is a program of its own.",
    )
