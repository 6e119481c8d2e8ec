"""Reductions that are too large, repeated, or too many.

*Large*: a value of a megabyte or more is combined in each step, is not a gradient, and is
most of the combined bytes. *Repeated*: the same value is combined in the same way twice in a
step, or a program combines inside a loop what it could combine once after it. *Many*: four
or more small values are combined one by one in each step, where one call could combine all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Final, NamedTuple

import numpy as np

from distlab.advice._columns import line_of_most
from distlab.advice._shares import Spent, loop_begin, loop_steps, spent_in
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice, Collective, Compile
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Ints
from distlab.text.bytes import bytes_text
from distlab.text.units import line_in

LARGE: Final = "large_reduction"
REPEATED: Final = "repeated_reduction"
MANY: Final = "many_reductions"

_LARGE_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 64 << 10
_MOST_OF_IT: Final = 0.5
_FEWEST_STEPS: Final = 5
_IN_MOST_STEPS: Final = 0.5
_MANY: Final = 4
_ROUNDS: Final = 4
_LARGE_SHARE: Final = 0.2

_OF_ONE_CALL: Final = 0.5
"""The cost of one more value in a call, as a share of a call with that value alone. Measured with
4 to 40 values on 2 and 4 devices: 0.45 to 0.52."""

_SHAPE: Final = re.compile(r"^([a-z]+)(\d+)\[([\d,]*)\](.*)$")


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds reductions that could be fewer or smaller, in columns of `folds.Evidence`."""
    return [*_in_calls(columns), *_in_programs(columns)]


class _Calls(NamedTuple):
    """Calls from Python that have one fault, in most of the steps that calls follow."""

    rows: Ints
    steps: int
    spent: Spent
    source: str


def _in_calls(columns: EvidenceColumns) -> Iterator[Advice]:
    reductions = columns["reductions"]
    by_step = _by_step(columns)
    for choose, advise in ((_repeated, _again), (_many, _one_by_one), (_large, _too_large)):
        chosen = [rows for all_rows in by_step if len(rows := choose(columns, all_rows))]
        if len(chosen) < max(_FEWEST_STEPS, _IN_MOST_STEPS * len(by_step)):
            continue
        rows = np.concatenate(chosen)
        durations = reductions["duration_ns"][rows]
        spent = spent_in(columns, reductions["time_ns"][rows], durations)
        source = line_of_most([reductions["source"][row] for row in rows], durations)
        if choose is not _large or spent.share >= _LARGE_SHARE:
            yield advise(columns, _Calls(rows, len(chosen), spent, source))


def _by_step(columns: EvidenceColumns) -> list[Ints]:
    """Returns the calls from Python that followed each step, if any did."""
    steps, reductions = columns["steps"], columns["reductions"]
    if not len(steps["step"]):
        return []
    inside = (reductions["call"] >= 0) & (reductions["time_ns"] >= loop_begin(columns))
    outside = np.array([verb != "all_reduce" for verb in reductions["verb"]], bool)
    rows = np.flatnonzero(inside & outside)
    place = np.searchsorted(steps["time_ns"], reductions["time_ns"][rows], side="right") - 1
    return [rows[place == step] for step in np.unique(place) if step >= 0]


def _repeated(columns: EvidenceColumns, rows: Ints) -> Ints:
    """Returns the calls that combine a value again as it was combined before."""
    reductions = columns["reductions"]
    seen: set[tuple[int, str, str]] = set()
    again = []
    for row in rows.tolist():
        key = (int(reductions["array"][row]), reductions["verb"][row], reductions["op"][row])
        again += [row] if key in seen else []
        seen.add(key)
    return np.array(again, int)


def _again(columns: EvidenceColumns, calls: _Calls) -> Advice:
    reductions, rows = columns["reductions"], calls.rows
    verb = reductions["verb"][rows[0]]
    typical = float(np.median(reductions["bytes"][rows]))
    spent_ns = float(reductions["duration_ns"][rows].sum())
    return new_advice(
        REPEATED,
        verb,
        f"{verb} was called again with the same value in {calls.steps} steps "
        f"({bytes_text(typical)} each, {ms_text(spent_ns)} in all).",
        "Keep the result of the first call.",
        evidence={
            "repeated_calls": len(rows),
            "bytes": typical,
            "share": calls.spent.share,
            "spent_ms": spent_ns / 1e6,
        },
        page="reductions",
        share=calls.spent.share,
        steps=loop_steps(columns),
        source=calls.source,
        saves_s=calls.spent.seconds,
    )


def _many(columns: EvidenceColumns, rows: Ints) -> Ints:
    """Returns the calls of a step that combine small values, each value once, where they are many.

    The leaves of a structure are one call.
    """
    reductions = columns["reductions"]
    small = rows[reductions["bytes"][rows] < _SMALL_BYTES]
    _, first = np.unique(reductions["array"][small], return_index=True)
    once = small[np.sort(first)]
    return once if len(np.unique(reductions["call"][once])) >= _MANY else once[:0]


def _one_by_one(columns: EvidenceColumns, calls: _Calls) -> Advice:
    number = round(len(np.unique(columns["reductions"]["call"][calls.rows])) / calls.steps)
    share = calls.spent.share
    return new_advice(
        MANY,
        "reduce",
        f"{number} small values are combined one by one {_when(columns, calls.steps)}; that "
        f"takes {percent_text(share)} of the loop's time.",
        "Pass them to one reduce as a dict or list, or combine them inside the function that "
        "run executes, where XLA merges them.",
        evidence={"calls_a_step": number, "share": share, "steps": calls.steps},
        page="reductions",
        share=share,
        steps=loop_steps(columns),
        source=calls.source,
        saves_s=(1 - _OF_ONE_CALL) * (1 - 1 / number) * calls.spent.seconds,
    )


def _when(columns: EvidenceColumns, steps: int) -> str:
    """Returns after how many of the steps something happens, such as once an epoch."""
    of_all = len(columns["steps"]["step"])
    often = steps >= _IN_MOST_STEPS * of_all
    return "in each step" if often else f"after {steps:,} of {of_all:,} steps"


def _large(columns: EvidenceColumns, rows: Ints) -> Ints:
    """Returns the calls that combine large values."""
    return rows[columns["reductions"]["bytes"][rows] >= _LARGE_BYTES]


def _too_large(columns: EvidenceColumns, calls: _Calls) -> Advice:
    reductions, rows, share = columns["reductions"], calls.rows, calls.spent.share
    verb = reductions["verb"][rows[-1]]
    typical = float(np.median(reductions["bytes"][rows]))
    return new_advice(
        LARGE,
        verb,
        f"{verb} moves {bytes_text(typical)} from each replica in each step; that takes "
        f"{percent_text(share)} of the loop's time.",
        "Combine less: sum or average on each replica first, combine less often, or inside the "
        "function that run executes.",
        evidence={
            "bytes": typical,
            "share": share,
            "call_ms": float(np.median(reductions["duration_ns"][rows])) / 1e6,
            "steps": calls.steps,
        },
        page="reductions",
        share=share,
        steps=loop_steps(columns),
        source=calls.source,
        saves_s=calls.spent.seconds,
    )


def _in_programs(columns: EvidenceColumns) -> list[Advice]:
    found: dict[tuple[str, str], Advice] = {}
    used = columns["steps"]["program"]
    for program in columns["compiles"]:
        steps = columns["steps"]["step"][used == program.program]
        if len(steps) >= _FEWEST_STEPS:
            on_mesh = program.strategy in columns["meshes"]
            for one in (_large_in(program, steps, on_mesh), _repeated_in(program, steps)):
                if one is not None:
                    found[one.cause, program.function] = one
    return list(found.values())


def _large_in(program: Compile, steps: Ints, on_mesh: bool) -> Advice | None:
    """Finds a large value that is not a gradient and is most of what a program combines.

    On a mesh, whose axes may divide more than examples, only what is neither state nor activation.
    """
    total, largest, foreign, source = 0, 0, 0, ""
    for one in program.collectives:
        if one.kind not in {"all-reduce", "all-gather"}:
            continue
        times = one.times_per_step or 1
        for value in one.values or [""]:
            match = _SHAPE.match(value)
            count = _bytes(match) if match else one.operand_bytes // max(one.operands, 1)
            total += times * count
            # A value shaped like a variable or an argument is its gradient or its new value.
            meant = on_mesh and one.purpose not in {"", "numbers"}
            if count >= _LARGE_BYTES and " like " not in value and not meant:
                foreign += times * count
                if count > largest:
                    largest, source = count, value.partition(" from ")[2] or one.source
    if not foreign or foreign < _MOST_OF_IT * total:
        return None
    place = source.rpartition(" at ")[2] or program.function
    return new_advice(
        LARGE,
        program.function,
        f"{program.function} combines a value of {bytes_text(largest)} across replicas in each "
        f"step (at {place}); that is {percent_text(foreign / total)} of all bytes it combines.",
        "Combine less: sum or average over the examples on each replica first.",
        evidence={"bytes": largest, "share_of_bytes": foreign / total, "steps": len(steps)},
        page="reductions",
        share=0.0,
        steps=steps,
        time_ns=program.time_ns,
        source=line_in(place) or program.source,
    )


def _bytes(match: re.Match[str]) -> int:
    dimensions = [int(size) for size in match[3].split(",") if size]
    return prod(dimensions) * int(match[2]) // 8


def _repeated_in(program: Compile, steps: Ints) -> Advice | None:
    """Finds a collective inside a loop of the program."""
    # A loop whose rounds train needs the sum of its gradients in the next round.
    once_is_enough = {doubt.source for doubt in program.doubts if doubt.about == "repeated_sum"}
    loops = [
        one
        for one in program.collectives
        if _in_a_loop(one) and one.source.rpartition(" at ")[2] in once_is_enough
    ]
    if not loops:
        return None
    one = max(loops, key=lambda c: (c.times_per_step or 0) * c.operand_bytes)
    times = one.times_per_step or 0
    place = one.source.rpartition(" at ")[2] or program.function
    return new_advice(
        REPEATED,
        program.function,
        f"{program.function} runs an {one.kind} of {bytes_text(one.operand_bytes)} {times} times "
        f"in each step, inside a loop (at {place}).",
        "Add up inside the loop, and combine across replicas once after it.",
        evidence={
            "times_a_step": times,
            "bytes": one.operand_bytes,
            "bytes_a_step": times * one.operand_bytes,
            "steps": len(steps),
        },
        page="reductions",
        share=0.0,
        steps=steps,
        time_ns=program.time_ns,
        source=line_in(place) or program.source,
    )


def _in_a_loop(one: Collective) -> bool:
    return one.kind == "all-reduce" and (one.times_per_step or 0) >= _ROUNDS
