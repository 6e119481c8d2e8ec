"""Captures of all processes that began at the same step, as one."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import msgspec
import numpy as np

from distlab.events import Capture
from distlab.folds.joining.members import Members


class Profiles:
    """Joins captures; one that lacks a process's part has the devices of the others alone."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, Capture]] = {}

    def add(
        self, process: int, event: Capture, members: Members, living: AbstractSet[int]
    ) -> Iterator[Capture]:
        """Adds a process's capture, and yields those that are whole, or never will be."""
        if event.first_step < 0:
            yield msgspec.structs.replace(event, strategy=members.strategy)
            return
        waiting = self._waiting.get(members.strategy, {})
        if any(one.first_step != event.first_step for one in waiting.values()):
            yield _joined(members, self._waiting.pop(members.strategy))
        waiting = self._waiting.setdefault(members.strategy, {})
        waiting[process] = event
        yield from self.settle(members, living)

    def settle(self, members: Members, living: AbstractSet[int]) -> Iterator[Capture]:
        """Yields the capture that waits for none of the living processes any more."""
        waiting = self._waiting.get(members.strategy)
        if waiting and not living - waiting.keys():
            yield _joined(members, self._waiting.pop(members.strategy))


def _joined(members: Members, parts: dict[int, Capture]) -> Capture:
    events = [parts[process] for process in members.replicas if process in parts]
    start_ns = min(event.start_ns for event in events)
    end_ns = max(event.time_ns for event in events)
    shorter = [end_ns - start_ns - (event.time_ns - event.start_ns) for event in events]
    return msgspec.structs.replace(
        events[0],
        time_ns=end_ns,
        strategy=members.strategy,
        start_ns=start_ns,
        steps=max(event.steps for event in events),
        devices=[name for event in events for name in event.devices],
        compute_ns=[length for event in events for length in event.compute_ns],
        waiting_ns=[length for event in events for length in event.waiting_ns],
        copy_ns=[length for event in events for length in event.copy_ns],
        idle_ns=[
            length + more
            for event, more in zip(events, shorter, strict=True)
            for length in event.idle_ns
        ],
        spans=[
            _moved(packed, event.start_ns - start_ns) for event in events for packed in event.spans
        ],
        spans_left_out=sum(event.spans_left_out for event in events),
        profile_bytes=sum(event.profile_bytes for event in events),
        cost_ns=sum(event.cost_ns for event in events),
        # Each process measured the durations of its own operations.
        work_ns=events[0].work_ns if len(events) == 1 else [],
        work_steps=events[0].work_steps if len(events) == 1 else 0,
    )


def _moved(packed: bytes, by_ns: int) -> bytes:
    """Returns packed spans that begin later."""
    if not by_ns:
        return packed
    rows = np.frombuffer(packed, "<i8").reshape(-1, 3).copy()
    rows[:, 0] += by_ns
    return rows.tobytes()
