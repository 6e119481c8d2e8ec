"""The times at which the replicas of all processes finished a step."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from distlab.events import StepReady
from distlab.folds.joining.members import Members

_MOST_STEPS: Final = 1_000


class ReadyTimes:
    """Collects the parts of a step: each process watches steps of its own choice."""

    def __init__(self) -> None:
        self._steps: OrderedDict[tuple[int, int], StepReady] = OrderedDict()

    def add(self, process: int, event: StepReady, members: Members) -> StepReady | None:
        """Adds a process's part."""
        times = members.own(process, event.ready_ns)
        if times is None:
            return None
        key = members.strategy, event.step
        known = self._steps.pop(key, None)
        ready_ns = [0] * len(members.processes) if known is None else list(known.ready_ns)
        for replica, time_ns in zip(members.replicas[process], times, strict=True):
            ready_ns[replica] = time_ns
        joined = self._steps[key] = msgspec.structs.replace(
            event,
            strategy=members.strategy,
            ready_ns=ready_ns,
            resolution_ns=max(event.resolution_ns, known.resolution_ns if known else 0),
        )
        if len(self._steps) > _MOST_STEPS:
            self._steps.popitem(last=False)
        return joined
