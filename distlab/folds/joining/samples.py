"""Samples of the devices of all processes, whose windows differ, as samples of one window."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from distlab.events import DeviceSample
from distlab.folds.joining.members import Members

_N = TypeVar("_N", int, float)

_MOST_WAITING: Final = 16
"""Samples of a process that wait for one of each other process."""


class Samples:
    """Joins the newest samples of the processes: shares of each process's own window."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, list[DeviceSample]]] = {}

    def add(
        self, process: int, event: DeviceSample, members: Members, seen: AbstractSet[int]
    ) -> DeviceSample | None:
        """Adds a process's sample."""
        if members.own(process, event.busy_ns) is None:
            return None
        waiting = self._waiting.setdefault(members.strategy, {})
        own = waiting.setdefault(process, [])
        own.append(event)
        if seen - waiting.keys() and len(own) < _MOST_WAITING:
            return None
        del self._waiting[members.strategy]
        return _joined(members, waiting)


def _joined(members: Members, waiting: dict[int, list[DeviceSample]]) -> DeviceSample:
    everything = [event for events in waiting.values() for event in events]
    start_ns = min(event.start_ns for event in everything)
    end_ns = max(event.time_ns for event in everything)
    busy_ns = [0] * len(members.processes)
    for process, events in waiting.items():
        watched = sum(event.time_ns - event.start_ns for event in events)
        parts = [members.own(process, event.busy_ns) or () for event in events]
        for replica, busy in zip(members.replicas[process], zip(*parts, strict=True), strict=True):
            busy_ns[replica] = round(sum(busy) / max(watched, 1) * (end_ns - start_ns))
    newest = {process: events[-1] for process, events in waiting.items()}
    return DeviceSample(
        time_ns=end_ns,
        strategy=members.strategy,
        start_ns=start_ns,
        busy_ns=busy_ns,
        memory_bytes=_whole(members, {p: event.memory_bytes for p, event in newest.items()}),
        process_memory_bytes=sum(event.process_memory_bytes for event in newest.values()),
        basis="profile" if all(event.basis == "profile" for event in everything) else "ready",
        used_bytes=_whole(members, {p: event.used_bytes for p, event in newest.items()}),
        utilization=_whole(members, {p: event.utilization for p, event in newest.items()}),
    )


def _whole(members: Members, parts: dict[int, list[_N] | None]) -> list[_N] | None:
    """Returns a list for all replicas, None when a process does not report its own."""
    values: dict[int, _N] = {}
    for process, part in parts.items():
        own = None if part is None else members.own(process, part)
        if own is None:
            return None
        values |= dict(zip(members.replicas[process], own, strict=True))
    if len(values) < len(members.processes):
        return None
    return [values[replica] for replica in range(len(members.processes))]
