"""The evidence that advice is made from: the last events of each kind, as columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final, TypedDict, TypeVar

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
from distlab.folds.event_tables import (
    CopyTable,
    CostTable,
    ReadyTable,
    ReductionTable,
    ShardingTable,
    StepTable,
    copy_table,
    cost_table,
    ready_table,
    reduction_table,
    sharding_table,
    step_table,
)

_MOST_EVENTS: Final = 5_000
"""Most events of a kind that are kept: the last ones."""

_WITH_ALL_DEVICES: Final = (StepReady, Sharding)
_MOST_NUMBERS: Final = 640_000
"""Most numbers that are kept of kinds with one number for each device."""

_MOST: Final[dict[type[Event], int]] = {
    **dict.fromkeys((Step, StepReady, Sharding, Reduction, Copy, RecorderCost), _MOST_EVENTS),
    Compile: 1_000,
    Capture: 16,
}

E = TypeVar("E", bound=Event)


class EvidenceColumns(TypedDict):
    """Columns of `Evidence`; tables have the last 5,000 events of a kind, oldest first.

    Attributes:
      begin_ns: Monotonic time when the recording began. Older events, such as programs
        compiled before it, belong to no step of the recording.
      simulated: Whether the devices share one machine's cores.
      strategies: Numbers of strategies to `(class name, device names)`.
      steps: `Step` events.
      ready: `StepReady` events; on more than 128 devices the last 640,000 times.
      batches: `Sharding` events; on more than 128 devices the last 640,000 sizes.
      reductions: `Reduction` events.
      copies: `Copy` events.
      costs: `RecorderCost` events.
      compiles: The last 1,000 `Compile` events.
      captures: The last 16 `Capture` events.
      placements: The `Placement` events of variables that are still placed.
      memory: Numbers of strategies to bytes in use on each device, as the newest
        sample reports; without strategies on platforms that do not report them.
      lost: How many events the recording lost, by its own count.
    """

    begin_ns: int
    simulated: bool
    strategies: dict[int, tuple[str, list[str]]]
    steps: StepTable
    ready: ReadyTable
    batches: ShardingTable
    reductions: ReductionTable
    copies: CopyTable
    costs: CostTable
    compiles: list[Compile]
    captures: list[Capture]
    placements: list[Placement]
    memory: dict[int, list[int]]
    lost: int


class Evidence:
    """The last events of the kinds that advice is made from."""

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
        self._kept: dict[type[Event], deque[Event]] = {
            kind: deque(maxlen=most) for kind, most in _MOST.items()
        }

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            kept = self._kept.get(type(event))
            if kept is not None:
                kept.append(event)
            else:
                self._update(event)
        self.version += bool(events)

    @property
    def last_cost(self) -> RecorderCost | None:
        """The newest account of the recording's cost, None before the first."""
        costs = self._kept[RecorderCost]
        newest = costs[-1] if costs else None
        return newest if isinstance(newest, RecorderCost) else None

    def _update(self, event: Event) -> None:
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
            self._kept[kind] = deque(kept, maxlen=min(most, kept.maxlen or _MOST_EVENTS))

    def _events(self, kind: type[E]) -> list[E]:
        return [event for event in self._kept[kind] if isinstance(event, kind)]

    def columns(self) -> EvidenceColumns:
        """Returns the evidence of all events so far."""
        return {
            "begin_ns": self._begin_ns,
            "simulated": self._simulated,
            "strategies": dict(self._strategies),
            "steps": step_table(self._events(Step)),
            "ready": ready_table(self._events(StepReady)),
            "batches": sharding_table(self._events(Sharding)),
            "reductions": reduction_table(self._events(Reduction)),
            "copies": copy_table(self._events(Copy)),
            "costs": cost_table(self._events(RecorderCost)),
            "compiles": self._events(Compile),
            "captures": self._events(Capture),
            "placements": list(self._placed.values()),
            "memory": dict(self._memory),
            "lost": self._lost,
        }
