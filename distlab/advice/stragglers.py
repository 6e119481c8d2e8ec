"""The replica that the others wait for.

All devices leave a collective together, and their ready times are equal: only a profile shows the
late one. The work of a step on each device (`Capture.work_ns`) does not depend on other programs
and shared cores: a replica is slow when it has 1.4 times the work of the others in the last
profiles, when the excess is a tenth of the time, and when it did four steps' work more than they
did in these profiles: the examples of few steps may differ. Where a profile lacks the work, as on
GPUs and in callbacks, the time for which each device computes takes its place, if the others wait
for a tenth of the time meanwhile and it does not.

Without a profile and without a collective the ready times show the late replica.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

import numpy as np

from distlab.advice._columns import line_of_most
from distlab.advice._shares import step_seconds
from distlab.advice._texts import ms_text, new_advice, percent_text, replicas_text
from distlab.events import Advice, Capture
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Floats, Ints

CAUSE: Final = "slow_replica"

_RATIO: Final = 1.4
_LEAST_EXCESS: Final = 4.0
_LEAST_SHARE: Final = 0.1

_FEWEST_READY: Final = 10
_OFTEN: Final = 0.8
_GAP: Final = 0.4

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


class _Profile(NamedTuple):
    """Profiles in a row in which the same replicas are slow."""

    slow: list[int]
    ratio: float  # How many times the work of the others they have
    captures: list[Capture]  # The profiles, newest first

    @property
    def whole(self) -> int:
        """The length of the profiles in nanoseconds."""
        return sum(one.time_ns - one.start_ns for one in self.captures)

    def sums(self, name: str) -> Floats:
        """Returns nanoseconds of each replica in an activity."""
        return np.sum([getattr(one, name) for one in self.captures], axis=0, dtype=float)


def _in_profiles(columns: EvidenceColumns, captures: list[Capture]) -> list[Advice]:
    profile = _last_profiles(captures)
    if profile is None:
        return []
    slow, ratio, whole = profile.slow, profile.ratio, profile.whole
    compute, waiting = profile.sums("compute_ns"), profile.sums("waiting_ns")
    others, waited = (float(np.median(np.delete(one, slow))) for one in (compute, waiting))
    longest, awaited = float(compute[slow].max()), waited - float(waiting[slow].max())
    excess = float(compute[slow].min()) * (1 - 1 / ratio)
    # On cores that devices share, the others compute for a part of the time in which they would
    # wait elsewhere. Those that start late wait less than the slow ones compute longer.
    saved = max(awaited, float(compute[slow].min()) - others)
    if saved >= _LEAST_SHARE * whole:
        excess = min(excess, saved)
    if excess < _LEAST_SHARE * whole:
        return []
    capture = profile.captures[0]
    names = replicas_text(slow)
    devices = ", ".join(capture.devices[replica] for replica in slow)
    has, it = ("has", "it") if len(slow) == 1 else ("have", "they")
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
            saves_s=_saved_seconds(columns, profile, excess),
            time_ns=capture.time_ns,
            source=_function_line(columns, _profiled_programs(columns, capture)),
        )
    ]


def _last_profiles(captures: list[Capture]) -> _Profile | None:
    """Returns the last profiles that agree on the slow replicas; None for too little evidence."""
    newest = captures[-1]
    alike: list[Capture] = []
    ratios: list[float] = []
    slow: list[int] = []
    excess = 0.0
    for one in reversed(captures):
        if one.devices != newest.devices:
            continue  # it lacks a process's part
        work, seen = _work(one)
        if not seen:
            continue
        more = _far_above(work)
        if not more or (alike and more != slow):
            break
        slow = more
        ratio = float(work[slow].min() / max(np.median(np.delete(work, slow)), 1))
        alike.append(one)
        ratios.append(ratio)
        excess += (ratio - 1) * seen
    return _Profile(slow, float(np.median(ratios)), alike) if excess >= _LEAST_EXCESS else None


def _work(capture: Capture) -> tuple[Floats, float]:
    """Returns the work of a step on each device, and the steps that show it.

    Operations don't show what a device waits for outside of JAX, such as a callback. Then the time
    for which each computes counts half, where the others wait for one that hardly waits.
    """
    work = np.array(capture.work_ns, float)
    if len(work) and _far_above(work):
        return work, capture.work_steps
    compute, waiting = (np.array(one, float) for one in (capture.compute_ns, capture.waiting_ns))
    slow = int(compute.argmax())
    others = float(np.median(np.delete(waiting, slow))) if len(waiting) > 1 else 0.0
    whole = capture.time_ns - capture.start_ns
    known = others >= _LEAST_SHARE * max(whole, 1) and waiting[slow] <= _LEAST_SHARE * others
    if known:
        return compute / max(capture.steps, 1), capture.steps / 2
    return (work, capture.work_steps) if len(work) else (compute, 0)


def _far_above(work: Floats) -> list[int]:
    """Returns the few replicas with far more work than the others."""
    order = np.argsort(-work)
    for few in range(1, max(2, (len(work) + 1) // 2)):
        last, rest = work[order[few - 1]], work[order[few:]]
        if len(rest) and last >= _RATIO * max(np.median(rest), 1) and last >= _RATIO * rest[0]:
            return sorted(int(replica) for replica in order[:few])
    return []


def _profiled_programs(columns: EvidenceColumns, capture: Capture) -> Ints:
    """Returns the programs of the steps that were called in a profile, or just before."""
    steps = columns["steps"]
    called = (steps["strategy"] == capture.strategy) & (steps["time_ns"] <= capture.time_ns)
    inside = called & (steps["time_ns"] >= capture.start_ns)
    return steps["program"][inside if inside.any() else called][-max(capture.steps, 1) :]


def _function_line(columns: EvidenceColumns, programs: Ints) -> str:
    """Returns the line of the function that most steps ran."""
    line_of = {one.program: one.source for one in columns["compiles"]}
    lines = [line_of.get(program, "") for program in programs.tolist()]
    return line_of_most(lines, [1.0] * len(lines))


def _saved_seconds(columns: EvidenceColumns, profile: _Profile, excess: float) -> float:
    """Returns the seconds that a step is longer for slow replicas.

    A profile may compute more steps than it sees dispatched: its share of a usual step is right.
    """
    usual = step_seconds(columns) if len(columns["steps"]["step"]) else None
    if usual is None:
        return excess / 1e9 / max(sum(one.steps for one in profile.captures), 1)
    return usual.whole * excess / profile.whole


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
    if len(rows) < _FEWEST_READY:
        return []
    late = np.array(rows, float)
    order = np.sort(late, axis=1)
    last = late.argmax(axis=1)
    slow = int(np.bincount(last).argmax())
    gap = np.median(order[:, -1] - order[:, -2])
    length = np.median(order[:, -1])
    often = float((last == slow).mean())
    if often < _OFTEN or gap < _GAP * length:
        return []
    device = columns["strategies"][strategy][1][slow]
    return [
        new_advice(
            CAUSE,
            replicas_text([slow]),
            f"Replica {slow} ({device}) was last in {percent_text(often)} of {len(rows)} watched "
            f"steps, {ms_text(gap)} after the next one; a step takes {ms_text(length)}.",
            _REMEDY,
            evidence={
                "late_ms": float(gap) / 1e6,
                "step_ms": float(length) / 1e6,
                "last_share": often,
                "watched_steps": len(rows),
            },
            page="devices",
            share=float(gap / length),
            saves_s=float(gap) / 1e9,
            steps=numbers,
            source=_function_line(columns, steps["program"][np.isin(steps["step"], numbers)]),
        )
    ]
