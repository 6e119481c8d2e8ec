"""The replica that the others wait for.

All devices leave a collective together, and their ready times are equal: only a profile shows the
late one. The work of a step on each device (`Capture.work_ns`) does not depend on other programs
and shared cores: a replica is slow when it has 1.4 times the work of the others in the last
profiles, when the excess is a tenth of the time, and when it sums up to four steps: the examples of
few steps may differ. Where a profile lacks the work, as on GPUs and in callbacks, the time for
which each device computes takes its place, as far as the others wait meanwhile.

Without a profile and without a collective the ready times show the late replica, by the same rule.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from distlab.advice._columns import line_of_most
from distlab.advice._shares import step_seconds
from distlab.advice._texts import ms_text, new_advice, percent_text, replicas_text
from distlab.events import Advice, Capture
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Floats

CAUSE: Final = "slow_replica"

_RATIO: Final = 1.4
_LEAST_EXCESS: Final = 4.0
LEAST_SHARE: Final = 0.1

_REMEDY: Final = (
    "Reduce its work, or find what else runs on its device: all others wait for it in every step."
)


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds replicas that the others wait for, in columns of `folds.Evidence`."""
    found = []
    profiled: dict[int, list[Capture]] = defaultdict(list)
    for capture in columns["captures"]:
        profiled[capture.strategy].append(capture)
    for strategy in {**profiled, **columns["strategies"]}:
        if _uneven(columns, strategy):
            continue
        if strategy in profiled:
            found += _in_profiles(columns, profiled[strategy])
        else:
            found += _in_ready_times(columns, strategy)
    return found


def _in_profiles(columns: EvidenceColumns, captures: list[Capture]) -> list[Advice]:
    alike, slow, ratio = _last_profiles(captures)
    if not alike:
        return []
    whole = sum(one.time_ns - one.start_ns for one in alike)
    compute, waiting = (
        np.sum([getattr(one, name) for one in alike], axis=0, dtype=float)
        for name in ("compute_ns", "waiting_ns")
    )
    others, waited = (float(np.median(np.delete(one, slow))) for one in (compute, waiting))
    excess = float(compute[slow].min()) * (1 - 1 / ratio)
    # On cores that devices share, the others compute for a part of the time in which they would
    # wait elsewhere. Those that start late wait less than the slow ones compute longer.
    saved = max(waited - float(waiting[slow].max()), float(compute[slow].min()) - others)
    if saved >= LEAST_SHARE * whole:
        excess = min(excess, saved)
    if excess < LEAST_SHARE * whole:
        return []
    capture = alike[0]
    names = replicas_text(slow)
    devices = ", ".join(capture.devices[replica] for replica in slow)
    has, it = ("has", "it") if len(slow) == 1 else ("have", "they")
    longest = float(compute[slow].max())
    usual = step_seconds(columns) if len(columns["steps"]["step"]) else None
    # A profile may compute more steps than it sees dispatched: its share of a usual step is right.
    step_s = usual[0] if usual else whole / 1e9 / max(sum(one.steps for one in alike), 1)
    return [
        new_advice(
            CAUSE,
            names,
            f"{names.capitalize()} ({devices}) {has} {ratio:.1f} times the work of the others in "
            f"each step: {it} computed {percent_text(longest / whole)} of the profiled time, and "
            f"the others waited {percent_text(waited / whole)} of it.",
            _REMEDY,
            evidence={
                "compute_ms": longest / 1e6,
                "others_compute_ms": others / 1e6,
                "waited_ms": float(waiting[slow].max()) / 1e6,
                "others_waited_ms": waited / 1e6,
                "profiled_ms": whole / 1e6,
                "ratio": ratio,
            },
            page="devices",
            share=excess / whole,
            saves_s=step_s * excess / whole,
            time_ns=capture.time_ns,
            source=_function_line(columns, capture.strategy),
        )
    ]


def _last_profiles(captures: list[Capture]) -> tuple[list[Capture], list[int], float]:
    """Returns the last profiles that agree on the slow replicas, these, and their ratio of work."""
    alike: list[Capture] = []
    ratios: list[float] = []
    slow: list[int] = []
    excess = 0.0
    for one in reversed(captures):
        if one.devices != captures[-1].devices:
            continue  # it lacks a process's part
        more, ratio, steps = slow_in(one)
        if not more and not one.work_steps:
            continue  # nothing is known
        if not more or (alike and more != slow):
            break
        slow = more
        alike.append(one)
        ratios.append(ratio)
        excess += steps
    if excess < _LEAST_EXCESS:
        return [], [], 0.0
    return alike, slow, float(np.median(ratios))


def slow_in(capture: Capture) -> tuple[list[int], float, float]:
    """Returns the slow replicas of a profile, their ratio of work, and the excess in steps."""
    slow, ratio = far_above(np.array(capture.work_ns, float))
    if slow:
        return slow, ratio, (ratio - 1) * capture.work_steps
    # Operations don't show what a device waits for outside of JAX, such as a callback.
    slow, ratio = far_above(np.array(capture.compute_ns, float))
    if not slow:
        return [], 1.0, 0.0
    waiting = np.array(capture.waiting_ns) / max(capture.time_ns - capture.start_ns, 1)
    others, own = float(np.median(np.delete(waiting, slow))), float(waiting[slow].max())
    # A busy machine takes a core from one for a while: then that one waits for others as well.
    known = others >= LEAST_SHARE and own <= LEAST_SHARE * others
    return (slow, ratio, (others - own) * capture.steps) if known else ([], 1.0, 0.0)


def far_above(work: Floats) -> tuple[list[int], float]:
    """Returns the few replicas with far more work than the others, and how many times as much."""
    order = np.argsort(-work)
    for few in range(1, min(len(work), max(2, (len(work) + 1) // 2))):
        last, rest = work[order[few - 1]], work[order[few:]]
        if last >= _RATIO * max(np.median(rest), 1) and last >= _RATIO * rest[0]:
            return sorted(order[:few].tolist()), float(last / max(np.median(rest), 1))
    return [], 1.0


def _function_line(columns: EvidenceColumns, strategy: int) -> str:
    """Returns the line of the function that most steps of a strategy ran."""
    steps = columns["steps"]
    line_of = {one.program: one.source for one in columns["compiles"]}
    programs = steps["program"][steps["strategy"] == strategy].tolist()
    return line_of_most([line_of.get(program, "") for program in programs], [1.0] * len(programs))


def _uneven(columns: EvidenceColumns, strategy: int) -> bool:
    """Returns whether most batches have far more examples for some replicas: another cause."""
    batches = columns["batches"]
    sizes = [
        examples
        for examples, own in zip(batches["sizes"], batches["strategy"], strict=True)
        if own == strategy
    ]
    uneven = sum(max(one) >= _RATIO * min(one) for one in sizes if max(one))
    return bool(sizes) and uneven > len(sizes) / 2


def _in_ready_times(columns: EvidenceColumns, strategy: int) -> list[Advice]:
    ready, steps = columns["ready"], columns["steps"]
    calls = dict(zip(steps["step"].tolist(), steps["time_ns"].tolist(), strict=True))
    numbers, rows = [], []
    for step, of, times in zip(
        ready["step"].tolist(), ready["strategy"].tolist(), ready["ready_ns"], strict=True
    ):
        if of == strategy and step in calls and len(times) > 1 and all(times):
            numbers.append(step)
            rows.append(np.array(times) - calls[step])
    if not rows:
        return []
    late = np.array(rows, float)
    usual = np.median(late, axis=0)
    slow, ratio = far_above(usual)
    if not slow or (ratio - 1) * len(rows) < _LEAST_EXCESS:
        return []
    length = float(usual[slow].min())
    gap = length - float(np.delete(usual, slow).max())
    often = float(np.isin(late.argmax(axis=1), slow).mean())
    names = replicas_text(slow)
    devices = ", ".join(columns["strategies"][strategy][1][replica] for replica in slow)
    return [
        new_advice(
            CAUSE,
            names,
            f"{names.capitalize()} ({devices}) {'was' if len(slow) == 1 else 'were'} last in "
            f"{percent_text(often)} of {len(rows)} watched steps, usually {ms_text(gap)} after the "
            f"next one; a step takes {ms_text(length)}.",
            _REMEDY,
            evidence={
                "late_ms": gap / 1e6,
                "step_ms": length / 1e6,
                "last_share": often,
                "watched_steps": len(rows),
            },
            page="devices",
            share=gap / length,
            saves_s=gap / 1e9,
            steps=numbers,
            source=_function_line(columns, strategy),
        )
    ]
