"""The replica that the others wait for.

All devices leave a collective together, and their ready times are equal: only a profile
shows the late one, which computes longest and waits least. Without a collective the ready
times show it.

A profile tells the work of a step on each device, which depends on nothing but the program
(`Capture.work_ns`). A replica is slow when it has 1.4 times the work of the others in five steps of
one profile, in four of two, or in each of three profiles. Where each step has as much work on all
devices, their times may still tell a slow one: it waits for a callback, or other programs keep its
device busy.

By its times a replica is slow when it computes at least twice as long as the median one and 1.5
times as long as the next, in each third of the profile, and when the excess is a tenth of the
time. CPU devices share the machine's cores: the times of equal replicas differ by tens of percents
from step to step. In several profiles together 1.4 times as long is enough where it also waits a
third of what the others do.

A replica may be slow from some step on. So the last three profiles also count by themselves: it
computes longest in each of them, and in seven of their nine thirds.

A device that loses its core once computes for long in one step. In profiles of six steps or more
the longest computation of each third doesn't count, of any replica. And where profiles tell what a
step usually takes on each device (`Capture.usual_ns`), that must be 1.4 times as long, too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

import numpy as np

from distlab.advice._lines import line_of_most
from distlab.advice._shares import step_seconds
from distlab.advice._texts import ms_text, new_advice, percent_text, replicas_text
from distlab.events import Advice, Capture
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Floats, Ints

CAUSE: Final = "slow_replica"

_MORE_WORK: Final = 1.4
_MORE_WORK_THAN_NEXT: Final = 1.25
_FEWEST_WORK_STEPS_OF_TWO: Final = 4
_FEWEST_WORK_STEPS: Final = 5
"""The steps of one profile that are enough: in fewer, the reason may be some examples."""

_TWICE: Final = 2.0
_MORE_THAN_NEXT: Final = 1.5
_LONGER: Final = 1.4
_WAITS_LESS: Final = 1 / 3
_FEWEST_STEPS_TOGETHER: Final = 9
_LATELY: Final = 3
"""How many of the last profiles count by themselves."""

_FEWEST_STEPS_LATELY: Final = 7
"""Those of two profiles, and one of the last, which a run's end may cut short."""

_OFTEN_OF_LATE: Final = 7 / 9
_FEW_LONGER: Final = 2.5
_FEW_WAIT_LESS: Final = 0.15
"""Two or three replicas: one may lose its core to another program for some profiles. So the last
profile alone doesn't count there, where those before it tell otherwise."""

_STEPS_TO_TRIM: Final = 6
_FEWEST_REPLICAS: Final = 4
"""Of fewer replicas one that shares its core with another program looks like a slow one."""

_LEAST_SHARE: Final = 0.1
_LEAST_NS: Final = 200_000
_WAITED_FOR: Final = 0.25
"""On cores that devices share, the others compute while they would wait elsewhere: the time for
which they wait tells better than the slow one's what equal work would save, where there is any."""

_OTHER_WORK: Final = 50.0
"""How many times as long as the others a device computes that has the sums of `strategy.reduce`,
where nobody waits for it. A replica with 20 times the work took 55 times as long under load."""

_BYTES_A_NS: Final = 1.0
"""At least so many bytes are combined on one device in a nanosecond. Under load it was 1.8, and
the device that gathers large values computed up to 20 times as long as the others."""

_BYTES_A_NS_EVEN: Final = 0.5
"""The same where the profile shows that a step has as much work on all devices. On a machine with
four busy programs a core it was 0.66."""

_PARTS: Final = 3
_COMPUTE: Final = 0
_SHORTEST_PROFILE_NS: Final = 20_000_000
_FEWEST_STEPS: Final = 10
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
    for strategy, captures in profiled.items():
        # One that lacks a process's part shows fewer devices, and can't be added to others.
        alike = [one for one in captures if one.devices == captures[-1].devices]
        found += _in_profiles(columns, strategy, alike)
    for strategy in columns["strategies"]:
        if strategy not in profiled:
            found += _in_ready_times(columns, strategy)
    return found


def _in_profiles(columns: EvidenceColumns, strategy: int, captures: list[Capture]) -> list[Advice]:
    """Finds slow replicas by their work, else in the last profile, else in all together."""
    if _uneven(columns, strategy):
        return []
    if found := _by_work(columns, captures):
        return found
    last = _Profile.of(captures[-1:])
    slow = _usually(_slow(last.compute), captures[-_LATELY:])
    trim = last.steps >= _STEPS_TO_TRIM
    thirds = all(_slow(part) == slow for part in _parts(captures[-1], trim=trim))
    if slow and thirds and _is_told_before(captures[-_LATELY:-1], slow):
        sums = _reduces(columns, strategy) and _is_other_work(last, slow)
        combined = _combining_ns(columns, captures[-1:]) >= _excess_ns(last, slow)
        return [] if sums or combined else _told(columns, captures[-1], slow, last)
    if slow := _slow_lately(captures[-_LATELY:]):
        captures = captures[-_LATELY:]
    profile = _Profile.of(captures)
    slow = _usually(slow or _slow_and_awaited(captures, profile), captures)
    if slow and _combining_ns(columns, captures) >= _excess_ns(profile, slow):
        return []
    return _told(columns, captures[-1], slow, profile)


class _Profile(NamedTuple):
    """Nanoseconds of each replica in profiles, and of all of them.

    Attributes:
      compute: How long each replica computed.
      waiting: How long each replica waited.
      whole: The length of the profiles.
      steps: Their steps.
    """

    compute: Floats
    waiting: Floats
    whole: int
    steps: int

    @classmethod
    def of(cls, captures: list[Capture]) -> _Profile:
        """Returns the sums of profiles of one strategy."""
        return cls(
            np.sum([capture.compute_ns for capture in captures], axis=0, dtype=float),
            np.sum([capture.waiting_ns for capture in captures], axis=0, dtype=float),
            sum(capture.time_ns - capture.start_ns for capture in captures),
            sum(capture.steps for capture in captures),
        )


def _by_work(columns: EvidenceColumns, captures: list[Capture]) -> list[Advice]:
    """Finds replicas that have more work than the others in each of the last profiles."""
    slow: list[int] = []
    alike: list[Capture] = []
    for one in [capture for capture in reversed(captures) if capture.work_ns][:_LATELY]:
        more = _far_above(np.array(one.work_ns, float), _MORE_WORK, _MORE_WORK_THAN_NEXT)
        if not more or (alike and more != slow):
            break
        alike, slow = [*alike, one], more
    steps = sum(one.work_steps for one in alike)
    fewest = _FEWEST_WORK_STEPS if len(alike) == 1 else _FEWEST_WORK_STEPS_OF_TWO
    if len(alike) < _LATELY and steps < fewest:
        return []
    works = [np.array(one.work_ns, float) for one in alike]
    ratios = [work[slow].min() / np.median(np.delete(work, slow)) for work in works]
    return _told(columns, alike[0], slow, _Profile.of(alike), float(np.median(ratios)))


def _usually(slow: list[int], captures: list[Capture]) -> list[int]:
    """Returns slow replicas if their steps usually take longer than those of the others, too.

    Profiles that do not tell are silent; of those that do, half must say so.
    """
    known = [np.array(one.usual_ns, float) for one in captures if one.usual_ns]
    if not slow or not known:
        return slow
    longer = [one[slow].min() >= _LONGER * np.median(np.delete(one, slow)) for one in known]
    return slow if 2 * sum(longer) >= len(known) else []


def _is_told_before(captures: list[Capture], slow: list[int]) -> bool:
    """Whether the profiles before tell the same, where that is needed: of few replicas."""
    if any(len(one.devices) >= _FEWEST_REPLICAS for one in captures):
        return True
    return all(_slow(_Profile.of([one]).compute) == slow for one in captures)


def _slow_lately(captures: list[Capture]) -> list[int]:
    """Returns the replica that computes far longer than the others in the last profiles."""
    profile = _Profile.of(captures)
    compute, waiting = profile.compute, profile.waiting
    few = len(compute) < _FEWEST_REPLICAS
    if len(captures) < _LATELY or profile.steps < _FEWEST_STEPS_LATELY or len(compute) < 2:
        return []
    slow = int(compute.argmax())
    others, awaited = (np.median(np.delete(one, slow)) for one in (compute, waiting))
    longer = compute[slow] >= (_FEW_LONGER if few else _LONGER) * others
    less = waiting[slow] <= (_FEW_WAIT_LESS if few else _WAITS_LESS) * awaited
    if not (longer and less and awaited >= _LEAST_SHARE * profile.whole):
        return []
    if any(np.argmax(one.compute_ns) != slow for one in captures):
        return []
    often = np.mean([part.argmax() == slow for one in captures for part in _parts(one)])
    return [slow] if often >= _OFTEN_OF_LATE else []


def _slow_and_awaited(captures: list[Capture], profile: _Profile) -> list[int]:
    """Returns the replica that computes longer than the others and waits far less, if one does.

    It must be the longest in each third of each profile.
    """
    compute, waiting = profile.compute, profile.waiting
    if len(compute) < _FEWEST_REPLICAS or profile.steps < _FEWEST_STEPS_TOGETHER:
        return []
    slow = int(compute.argmax())
    others = np.median(np.delete(compute, slow))
    awaited = np.median(np.delete(waiting, slow))
    longer = compute[slow] >= _LONGER * others and awaited >= _LEAST_SHARE * profile.whole
    if not longer or waiting[slow] > awaited * _WAITS_LESS:
        return []
    always = all(part.argmax() == slow for capture in captures for part in _parts(capture))
    return [slow] if always else []


def _told(
    columns: EvidenceColumns,
    capture: Capture,
    slow: list[int],
    profile: _Profile,
    work_ratio: float | None = None,
) -> list[Advice]:
    """Returns advice on slow replicas, where they cost enough."""
    compute, waiting, whole = profile.compute, profile.waiting, profile.whole
    if not slow or whole < _SHORTEST_PROFILE_NS:
        return []
    longest, others = compute[slow].max(), np.median(np.delete(compute, slow))
    waited = np.median(np.delete(waiting, slow))
    names = replicas_text(slow)
    devices = ", ".join(capture.devices[replica] for replica in slow)
    subject = f"{names.capitalize()} ({devices})"
    computed = f"computed {percent_text(longest / whole)} of the profiled time"
    if work_ratio is None:
        excess, ratio = _excess_ns(profile, slow), longest / max(others, 1.0)
        text = f"{subject} {computed}, {ratio:.1f} times as long as the others, which waited"
    else:
        # The times of devices that share cores differ by less than their work.
        excess, ratio = float(compute[slow].min()) * (1 - 1 / work_ratio), work_ratio
        has, it = ("has", "it") if len(slow) == 1 else ("have", "they")
        text = (
            f"{subject} {has} {ratio:.1f} times the work of the others in each step: {it} "
            f"{computed}, and the others waited"
        )
    if excess < max(_LEAST_SHARE * whole, _LEAST_NS * profile.steps / 2):
        return []
    awaited = float(waited - waiting[slow].max())
    if awaited >= _WAITED_FOR * excess:
        if work_ratio is not None:  # who starts late waits less than the slow ones compute longer
            awaited = max(awaited, _excess_ns(profile, slow))
        excess = min(excess, awaited)
    return [
        new_advice(
            CAUSE,
            names,
            f"{text} {percent_text(waited / whole)} of it.",
            _REMEDY,
            evidence={
                "compute_ms": longest / 1e6,
                "others_compute_ms": float(others) / 1e6,
                "waited_ms": float(waiting[slow].max()) / 1e6,
                "others_waited_ms": float(waited) / 1e6,
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
        return excess / 1e9 / max(profile.steps, 1)
    return usual.whole * excess / profile.whole


def _excess_ns(profile: _Profile, slow: list[int]) -> float:
    """Returns how much longer than the others slow replicas computed."""
    return float(profile.compute[slow].min() - np.median(np.delete(profile.compute, slow)))


def _combining_ns(columns: EvidenceColumns, captures: list[Capture]) -> float:
    """Returns how long a device may have combined the values of all replicas in profiles."""
    reductions = columns["reductions"]
    to_one = np.array([way == "to_one_device" for way in reductions["algorithm"]], bool)
    spent = 0.0
    for one in captures:
        begun = reductions["time_ns"]
        inside = (begun >= one.start_ns) & (begun <= one.time_ns)
        own = to_one & inside & (reductions["strategy"] == one.strategy)
        even = bool(one.work_ns) and max(one.work_ns) < _MORE_WORK * min(one.work_ns)
        speed = _BYTES_A_NS_EVEN if even else _BYTES_A_NS
        spent += float(reductions["bytes"][own].sum()) * len(one.devices) / speed
    return spent


def _reduces(columns: EvidenceColumns, strategy: int) -> bool:
    """Whether values of the strategy were added up on one device."""
    reductions = columns["reductions"]
    ways = zip(reductions["strategy"].tolist(), reductions["algorithm"], strict=True)
    return (strategy, "to_one_device") in ways


def _is_other_work(profile: _Profile, slow: list[int]) -> bool:
    """Whether the others compute next to nothing beside these, and do not wait either."""
    others = max(np.median(np.delete(profile.compute, slow)), 1.0)
    waited = np.median(np.delete(profile.waiting, slow))
    return bool(
        profile.compute[slow].max() > _OTHER_WORK * others and waited < _LEAST_SHARE * profile.whole
    )


def _slow(compute: Floats) -> list[int]:
    """Returns the replicas that compute far longer than the others, if they are few."""
    return _far_above(compute, _TWICE, _MORE_THAN_NEXT)


def _far_above(values: Floats, typical: float, following: float) -> list[int]:
    """Returns the few replicas whose values are so many times the median and the next one."""
    count = len(values)
    if count < 2:
        return []
    order = np.argsort(-values)
    median = np.median(values) if count > 2 else values.min()
    for few in range(1, (count - 1) // 2 + 1 if count > 2 else 2):
        last, after = values[order[few - 1]], values[order[few]]
        if last > 0 and last >= typical * median and last >= following * after:
            return sorted(int(replica) for replica in order[:few])
    return []


def _parts(capture: Capture, *, trim: bool = False) -> list[Floats]:
    """Returns the replicas' compute times in each part of the profile."""
    edges = np.linspace(0, capture.time_ns - capture.start_ns, _PARTS + 1).round()
    parts = np.zeros((_PARTS, len(capture.devices)))
    for replica, packed in enumerate(capture.spans):
        rows = np.frombuffer(packed, "<i8").reshape(-1, 3)
        begin, length, activity = rows.T
        for part in range(_PARTS):
            inside = np.minimum(begin + length, edges[part + 1]) - np.maximum(begin, edges[part])
            inside = np.maximum(inside[activity == _COMPUTE], 0)
            longest = inside.max(initial=0) if trim else 0
            parts[part, replica] = inside.sum() - longest
    return list(parts)


def _uneven(columns: EvidenceColumns, strategy: int) -> bool:
    """Whether the replicas received different numbers of examples: another cause."""
    batches = columns["batches"]
    sizes = [
        examples
        for examples, own in zip(batches["sizes"], batches["strategy"], strict=True)
        if own == strategy
    ]
    uneven = sum(max(one) >= _MORE_THAN_NEXT * min(one) for one in sizes if max(one))
    return bool(sizes) and uneven > len(sizes) / 2


def _in_ready_times(columns: EvidenceColumns, strategy: int) -> list[Advice]:
    ready, steps = columns["ready"], columns["steps"]
    calls = dict(zip(steps["step"].tolist(), steps["time_ns"].tolist(), strict=True))
    numbers, rows = [], []
    for step, of, times, estimated in zip(
        ready["step"].tolist(),
        ready["strategy"].tolist(),
        ready["ready_ns"],
        ready["estimated"],
        strict=True,
    ):
        watched = not estimated and len(times) > 1 and all(times)
        if of == strategy and step in calls and watched:
            numbers.append(step)
            rows.append(np.array(times) - calls[step])
    if len(rows) < _FEWEST_STEPS or _uneven(columns, strategy):
        return []
    late = np.array(rows, float)
    order = np.sort(late, axis=1)
    last = late.argmax(axis=1)
    slow = int(np.bincount(last).argmax())
    gap = np.median(order[:, -1] - order[:, -2])
    length = np.median(order[:, -1])
    often = float((last == slow).mean())
    if often < _OFTEN or gap < max(_GAP * length, _LEAST_NS) or late.shape[1] < 2:
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
