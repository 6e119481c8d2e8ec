"""Eager mode that was left on.

Eagerly a function runs as ordinary Python, once for each replica and one replica after another.
That is for debugging: some steps, and then the functions are compiled again. It was left on
where the last 20 calls of a function were eager, and take a third of the loop's time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from distlab.advice._shares import loop_begin, loop_steps, spent_in
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice, Compile
from distlab.folds import EvidenceColumns

CAUSE: Final = "eager_mode"

_FEWEST_STEPS: Final = 20
_LEAST_SHARE: Final = 0.33
_LEAST_NS: Final = 1_000_000


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds functions that still run eagerly, in columns of `folds.Evidence`."""
    programs: dict[tuple[int, str, str], list[Compile]] = defaultdict(list)
    for one in columns["compiles"]:
        programs[one.strategy, one.function, one.source].append(one)
    steps = columns["steps"]
    found = []
    for (_, function, source), compiled in programs.items():
        eager = [one for one in compiled if one.mode == "eager"]
        if not eager:
            continue
        own = np.flatnonzero(np.isin(steps["program"], [one.program for one in compiled]))
        eagerly = np.isin(steps["program"][own], [one.program for one in eager])
        if len(own) < _FEWEST_STEPS or not eagerly[-_FEWEST_STEPS:].all():
            continue
        rows = own[eagerly & (steps["time_ns"][own] >= loop_begin(columns))]
        if not len(rows):
            continue
        begun = steps["time_ns"][rows]
        spent = steps["dispatched_ns"][rows] - begun
        share, seconds = spent_in(columns, begun, spent)
        typical = float(np.median(spent))
        if share < _LEAST_SHARE or typical < _LEAST_NS:
            continue
        found.append(
            new_advice(
                CAUSE,
                f"function {function}",
                f"{function} runs eagerly, as ordinary Python for one replica after another, in "
                f"{len(rows)} steps: {ms_text(typical)} each, {percent_text(share)} of the loop's "
                "time.",
                "Remove run_functions_eagerly(True) or RunOptions(run_eagerly=True) after "
                "debugging: run then compiles the function once.",
                evidence={"eager_steps": len(rows), "step_ms": typical / 1e6, "share": share},
                page="steps",
                share=share,
                steps=loop_steps(columns),
                source=eager[-1].called or source,
                saves_s=seconds,
            )
        )
    return found
