"""A reduction algorithm that is slower here than another one.

On CPU devices, calls from Python are fastest with the default, which adds up on one device: the
other algorithms move data between buffers of one memory. On GPUs and TPUs the links decide: there
is no advice for them, nor for `TPUStrategy`, which always uses all-reduce, and
`MultiWorkerMirroredStrategy`, whose workers have no device in common.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice._shares import loop_begin, loop_steps, spent_in
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Floats, Ints

CAUSE: Final = "slow_algorithm"

_NO_CHOICE: Final = ("TPUStrategy", "MultiWorkerMirroredStrategy")
_FASTER_HERE: Final = "to_one_device"
_INSIDE: Final = (
    " The all-reduces inside the strategy's functions use it, too; their time is not counted here."
)
_FEWEST: Final = 5
_LEAST_SHARE: Final = 0.05


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds algorithms to replace, in columns of `folds.Evidence`."""
    reductions = columns["reductions"]
    if not columns["simulated"] or len(columns["steps"]["step"]) < 2:
        return []
    begin = loop_begin(columns)
    programs = columns["compiles"]
    found = []
    for algorithm in sorted(set(reductions["algorithm"]) - {_FASTER_HERE}):
        own = [
            used == algorithm and verb == "reduce" and _chosen(columns, strategy)
            for used, verb, strategy in zip(
                reductions["algorithm"],
                reductions["verb"],
                reductions["strategy"].tolist(),
                strict=True,
            )
        ]
        rows = np.flatnonzero(np.array(own) & (reductions["time_ns"] >= begin))
        if len(rows) < _FEWEST:
            continue
        spent = reductions["duration_ns"][rows]
        share = spent_in(columns, reductions["time_ns"][rows], spent).share
        if share < _LEAST_SHARE:
            continue
        calls = _by_call(reductions["call"][rows], spent)
        typical_call = float(np.median(calls))
        strategy = int(reductions["strategy"][rows[0]])
        communicates = any(one.collectives and one.strategy == strategy for one in programs)
        inside = _INSIDE if communicates else ""
        found.append(
            new_advice(
                CAUSE,
                algorithm,
                f"reduce uses {algorithm}, {ms_text(typical_call)} a call and "
                f"{percent_text(share)} of the loop's time; on CPU devices the default algorithm "
                f"is faster: it moves no data between buffers of one memory.{inside}",
                "Omit cross_device_ops: the default chooses the faster one for each call.",
                evidence={
                    "call_ms": typical_call / 1e6,
                    "bytes": float(np.median(reductions["bytes"][rows])),
                    "calls": len(calls),
                    "share": share,
                },
                page="reductions",
                share=share,
                steps=loop_steps(columns),
                source=columns["strategies_made"].get(strategy, ""),
            )
        )
    return found


def _by_call(calls: Ints, spent: Ints) -> Floats:
    """Returns the nanoseconds of each call, which may combine several values."""
    numbers = np.where(calls < 0, -1 - np.arange(len(calls)), calls)  # -1 where it is not known
    _, call = np.unique(numbers, return_inverse=True)
    totals = np.zeros(int(call.max()) + 1)
    np.add.at(totals, call, spent)
    return totals


def _chosen(columns: EvidenceColumns, strategy: int) -> bool:
    """Returns whether the user chose the algorithm, and not the strategy."""
    return columns["strategies"].get(strategy, ("", []))[0] not in _NO_CHOICE
