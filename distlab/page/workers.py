"""The tables of processes, and of what they send to each other, as text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from distlab.folds import ProgramColumns, ReductionColumns, WorkerColumns
from distlab.page.facts.amounts import NOTHING
from distlab.page.facts.workers import status_text
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, plain, share_text

Rows: TypeAlias = dict[str, list[str]]
_Sent: TypeAlias = tuple[int, float, int]
"""Devices that work together, the bytes of one to the next each time, and how many times."""

NAMES: Final = (
    *("worker", "worker_full", "host", "replicas", "replicas_full", "status", "status_full"),
    *("steps", "own", "wait", "wait_share", "examples", "bytes", "clock"),
)
LINKS: Final = ("from", "to", "way", "step", "total")
_MOST_LINKS: Final = 200


def worker_rows(workers: WorkerColumns, living: AbstractSet[int] | None) -> Rows:
    """Returns a row for each process; columns that end in `_full` are tooltips."""
    places = range(len(workers["name"]))
    return {
        "worker": workers["name"],
        "worker_full": [
            f"{plain(task) or 'no cluster'}, process {pid}, start {generation + 1}"
            for task, pid, generation in zip(
                workers["task"], workers["pid"], workers["generation"], strict=True
            )
        ],
        "host": [plain(host, 24) or NOTHING for host in workers["host"]],
        "replicas": [_replicas(workers, place) for place in places],
        "replicas_full": [plain(", ".join(names), 400) for names in workers["devices"]],
        "status": [status_text(workers, place, living) for place in places],
        "status_full": [plain(message, 400) for message in workers["message"]],
        "steps": [count_text(steps) for steps in workers["steps"]],
        "own": [_ms(own) for own in workers["own_ms"]],
        "wait": [_ms(wait) for wait in workers["wait_ms"]],
        "wait_share": [
            NOTHING if math.isnan(share) else share_text(share) for share in workers["wait_share"]
        ],
        "examples": [count_text(examples) for examples in workers["examples"]],
        "bytes": [bytes_text(size) for size in workers["bytes"]],
        "clock": [_clock(workers, place) for place in places],
    }


def _replicas(workers: WorkerColumns, place: int) -> str:
    """Returns the numbers of a process's replicas: they are numbered process by process."""
    first = sum(len(names) for names in workers["devices"][:place])
    count = len(workers["devices"][place])
    if not count:
        return NOTHING
    return str(first) if count == 1 else f"{first} to {first + count - 1}"


def _ms(milliseconds: float) -> str:
    return NOTHING if math.isnan(milliseconds) else f"{milliseconds:.3g} ms"


def _clock(workers: WorkerColumns, place: int) -> str:
    offset, error = workers["offset_ms"][place], workers["error_ms"][place]
    if not workers["recorded"][place]:
        return NOTHING
    if not error:
        return "the same" if place else "its own"
    return f"{offset:+.3g} \u00b1 {error:.2g} ms"


def link_rows(
    workers: WorkerColumns, programs: ProgramColumns, reductions: ReductionColumns, steps: int
) -> Rows:
    """Returns the bytes within each process, and from each to the next.

    XLA does not report a route. These are those of the ring that moves the fewest bytes:
    each device sends to the next one, and the last one of a process to another process.
    """
    owners = [place for place, names in enumerate(workers["devices"]) for _ in names]
    sums: dict[tuple[int, int], float] = {}
    for size, wire_bytes, times in (*_in_programs(programs), *_from_python(reductions)):
        group = min(size or len(owners), len(owners))
        for device, owner in enumerate(owners):
            begin = device - device % group if group else 0
            following = begin + (device - begin + 1) % max(group, 1)
            if group > 1 and following < len(owners):
                link = owner, owners[following]
                sums[link] = sums.get(link, 0.0) + wire_bytes * times
    found = sorted(sums.items(), key=lambda item: (item[0][0] == item[0][1], item[0]))
    kept = found[:_MOST_LINKS]
    names = workers["name"]
    return {
        "from": [names[begin] for (begin, _), _ in kept],
        "to": [names[end] for (_, end), _ in kept],
        "way": ["stays inside" if begin == end else "crosses" for (begin, end), _ in kept],
        "step": [bytes_text(round(size / max(steps, 1))) for _, size in kept],
        "total": [bytes_text(round(size)) for _, size in kept],
    }


def _in_programs(programs: ProgramColumns) -> Iterator[_Sent]:
    for collectives, steps in zip(programs["collectives"], programs["steps"], strict=True):
        for one in collectives:
            times = 1 if one.times_per_step is None else one.times_per_step
            if one.wire_bytes is not None and steps:
                yield one.group or one.participants, one.wire_bytes, times * steps


def _from_python(reductions: ReductionColumns) -> Iterator[_Sent]:
    for place, inside in enumerate(reductions["inside"]):
        others = reductions["participants"][place] - 1
        if inside or others < 1:
            continue
        size = float(reductions["bytes"][place])
        wire = size * others if reductions["kind"][place] == "gather" else _ring(size, others)
        yield others + 1, wire, reductions["count"][place]


def _ring(size: float, others: int) -> float:
    """Returns the bytes that one device sends in an all-reduce by a ring."""
    return 2 * size * others / (others + 1)
