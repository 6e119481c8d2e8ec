"""What advice is made from: the last events of each kind, as columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from distlab.events import (
    Capture,
    Compile,
    Copy,
    DeviceSample,
    Event,
    Lost,
    Placement,
    RecorderCost,
    Reduction,
    Run,
    Sharding,
    Step,
    StepReady,
    Strategy,
)
from distlab.folds._fold import Columns

_MOST: Final = 5_000
"""Events of each kind that are kept: the last ones."""

_WITH_ALL_DEVICES: Final = (StepReady, Sharding)
_MOST_NUMBERS: Final = 640_000
"""Numbers of events that have one for each device: of very many devices fewer are kept."""

_LARGEST: Final = (1 << 63) - 1
_MOST_CAPTURES: Final = 16
_MOST_COMPILES: Final = 1_000

_NUMBERS: Final[dict[type[Event], tuple[str, ...]]] = {
    Step: ("time_ns", "step", "program", "strategy", "dispatched_ns", "examples"),
    StepReady: ("step", "strategy"),
    Sharding: (
        *("time_ns", "strategy", "dataset", "batch", "epoch"),
        *("nominal", "bytes", "wait_ns", "transfer_ns"),
    ),
    Reduction: ("time_ns", "strategy", "bytes", "participants", "duration_ns", "array", "call"),
    Copy: ("time_ns", "strategy", "bytes", "copies", "duration_ns"),
    RecorderCost: (
        *("time_ns", "start_ns", "events", "emit_ns", "writer_ns", "watcher_ns"),
        *("capture_ns", "waiting", "lost"),
    ),
}
_OTHERS: Final[dict[type[Event], tuple[str, ...]]] = {
    StepReady: ("ready_ns",),
    Sharding: ("sizes", "policy"),
    Reduction: ("verb", "op", "algorithm", "dtype"),
    Copy: ("what", "direction"),
}


class Evidence:
    """The last events of the kinds that advice is made from.

    Columns:
      begin_ns: monotonic time at which the recording began: what is older stood
        before, such as programs that were compiled by then.
      simulated: true when the devices share one machine's cores.
      strategies: number to `(class name, device names)`.
      steps, ready, batches, reductions, copies, costs: columns of the events
        `Step`, `StepReady`, `Sharding`, `Reduction`, `Copy` and `RecorderCost`,
        the last 5,000 of each (of the second and third 640,000 over the number of
        devices, if that is less), oldest first: int64 arrays for numbers, lists for
        everything else, by the names of the events' fields.
      compiles: list of `Compile` events, the last 1,000.
      captures: list of `Capture` events, the last 16.
      placements: list of `Placement` events of what is still placed.
      memory: strategy to bytes in use on each device, as the newest sample says;
        strategies on platforms that don't tell are missing.
      lost: events of which the recording says that it lost them.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (
        *(Run, Strategy, Placement, Sharding, Compile, Step, StepReady),
        *(Reduction, Copy, Capture, DeviceSample, RecorderCost, Lost),
    )

    def __init__(self) -> None:
        self.version = 0
        self._begin_ns = 0
        self._simulated = False
        self._strategies: dict[int, tuple[str, list[str]]] = {}
        self._placed: dict[int, Placement] = {}
        self._memory: dict[int, list[int]] = {}
        self._lost = 0
        self._kept: dict[type[Event], deque[Any]] = {
            **{kind: deque(maxlen=_MOST) for kind in _NUMBERS},
            Compile: deque(maxlen=_MOST_COMPILES),
            Capture: deque(maxlen=_MOST_CAPTURES),
        }

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            kept = self._kept.get(type(event))
            if kept is not None:
                kept.append(event)
            else:
                self._take(event)
        self.version += bool(events)

    @property
    def last_cost(self) -> RecorderCost | None:
        """The newest account of what recording costs, None before the first."""
        costs = self._kept[RecorderCost]
        return costs[-1] if costs else None

    def _take(self, event: Event) -> None:
        match event:
            case DeviceSample(memory_bytes=memory) if memory is not None:
                self._memory[event.strategy] = memory
            case Placement(action="free"):
                self._placed.pop(event.array, None)
            case Placement():
                self._placed[event.array] = event
            case Strategy():
                self._strategies[event.strategy] = (event.name, event.devices)
                self._limit(len(event.devices))
            case Run():
                self._begin_ns = self._begin_ns or event.time_ns
                self._simulated = any(device.simulated for device in event.devices)
            case Lost():
                self._lost += event.count
            case _:
                pass

    def _limit(self, devices: int) -> None:
        """Keeps fewer of the events that grow with the number of devices."""
        most = max(1, _MOST_NUMBERS // max(1, devices))
        for kind in _WITH_ALL_DEVICES:
            kept = self._kept[kind]
            self._kept[kind] = deque(kept, maxlen=min(most, kept.maxlen or _MOST))

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        return {
            "begin_ns": self._begin_ns,
            "simulated": self._simulated,
            "strategies": dict(self._strategies),
            "steps": self._columns(Step),
            "ready": self._columns(StepReady),
            "batches": self._columns(Sharding),
            "reductions": self._columns(Reduction),
            "copies": self._columns(Copy),
            "costs": self._columns(RecorderCost),
            "compiles": list(self._kept[Compile]),
            "captures": list(self._kept[Capture]),
            "placements": list(self._placed.values()),
            "memory": dict(self._memory),
            "lost": self._lost,
        }

    def _columns(self, kind: type[Event]) -> Columns:
        events = self._kept[kind]
        numbers: Columns = {field: _array(events, field) for field in _NUMBERS[kind]}
        others = {field: [getattr(e, field) for e in events] for field in _OTHERS.get(kind, ())}
        return numbers | others


def _array(events: Iterable[Event], field: str) -> np.ndarray:
    numbers = [getattr(event, field) for event in events]
    try:
        return np.array(numbers, np.int64)
    except OverflowError:  # a damaged file can hold any number
        return np.array([min(number, _LARGEST) for number in numbers], np.int64)
