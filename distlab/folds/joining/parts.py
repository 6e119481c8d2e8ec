"""The parts of batches, samples, captures, variables and numbers, each joined to a whole."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import msgspec
import numpy as np

from distlab.events import Capture, DeviceSample, Metric, Placement, Preview, Sharding, StepReady
from distlab.events.positions import packed
from distlab.folds.joining.members import Members

_MOST_WAITING: Final = 256
"""Batches that wait for the part of a process."""

_MOST_PLACED: Final = 256


_Key: TypeAlias = tuple[int, int, int]
"""A batch: its dataset, epoch and number, which all processes share."""


@dataclass
class _Batch:
    """A batch of which parts arrived."""

    members: Members
    parts: dict[int, Sharding] = field(default_factory=dict)  # The event of each process
    previews: list[tuple[int, Preview]] = field(default_factory=list)  # By examples of their part

    def first_example(self, process: int) -> int:
        """Returns how many examples of the batch come before a process's own."""
        sizes = _batch_sizes(self)
        own = self.members.replicas[process]
        return sum(sizes[: own[0]]) if own else 0


class BatchParts:
    """Joins the parts of batches; one that a process left out has no examples there."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[_Key, _Batch] = OrderedDict()
        self._placed: OrderedDict[_Key, _Batch] = OrderedDict()

    def add(
        self,
        process: int,
        event: Sharding,
        dataset: int,
        members: Members,
        living: AbstractSet[int],
    ) -> Iterator[Sharding | Preview]:
        """Adds a process's part, and yields what is whole."""
        if members.own(process, event.sizes) is None:
            return
        key = dataset, event.epoch, event.batch
        batch = self._waiting.setdefault(key, _Batch(members))
        batch.parts[process] = event
        if not living - batch.parts.keys():
            yield from self._finish(key)
        elif len(self._waiting) > _MOST_WAITING:
            yield from self._finish(next(iter(self._waiting)))

    def preview(self, process: int, event: Preview, dataset: int) -> Iterator[Preview]:
        """Adds previews of a process's examples, and yields them when their places are known."""
        if event.batch is None:
            yield msgspec.structs.replace(event, dataset=dataset)
            return
        key = dataset, event.epoch, event.batch
        if key in self._placed:
            yield _shifted(self._placed[key], process, event, dataset)
        elif key in self._waiting:
            self._waiting[key].previews.append((process, event))

    def settle(self, members: Members, living: AbstractSet[int]) -> Iterator[Sharding | Preview]:
        """Yields the batches that wait for none of the living processes any more."""
        for key, batch in list(self._waiting.items()):
            if batch.members is members and not living - batch.parts.keys():
                yield from self._finish(key)

    def _finish(self, key: _Key) -> Iterator[Sharding | Preview]:
        batch = self._waiting.pop(key)
        yield _joined_batch(batch, key[0])
        for process, preview in batch.previews:
            yield _shifted(batch, process, preview, key[0])
        if next(iter(batch.parts.values())).indices is None:
            self._placed[key] = batch
            if len(self._placed) > _MOST_PLACED:
                self._placed.popitem(last=False)


def _batch_sizes(batch: _Batch) -> list[int]:
    sizes = [0] * len(batch.members.processes)
    for process, event in batch.parts.items():
        own = batch.members.own(process, event.sizes) or ()
        for replica, size in zip(batch.members.replicas[process], own, strict=True):
            sizes[replica] = size
    return sizes


def _joined_batch(batch: _Batch, dataset: int) -> Sharding:
    events = [batch.parts[p] for p in batch.members.replicas if p in batch.parts]
    parts = [event.positions for event in events]
    known = [positions for positions in parts if positions is not None]
    return msgspec.structs.replace(
        events[0],
        time_ns=max(event.time_ns for event in events),
        strategy=batch.members.strategy,
        dataset=dataset,
        sizes=_batch_sizes(batch),
        **packed(np.concatenate(known) if len(known) == len(parts) else None),
        bytes=sum(event.bytes for event in events),
        wait_ns=max(event.wait_ns for event in events),
        transfer_ns=max(event.transfer_ns for event in events),
        repeated=sum(event.repeated for event in events),
    )


def _shifted(batch: _Batch, process: int, event: Preview, dataset: int) -> Preview:
    """Returns previews numbered within the whole batch."""
    positions = np.frombuffer(event.indices, "<i8") + batch.first_example(process)
    return msgspec.structs.replace(event, dataset=dataset, indices=positions.tobytes())


_MOST_WATCHED: Final = 1_000


class ReadyTimes:
    """Collects the parts of a step: each process watches steps of its own choice."""

    def __init__(self) -> None:
        self._steps: OrderedDict[tuple[int, int], StepReady] = OrderedDict()

    def add(self, process: int, event: StepReady, members: Members) -> Iterator[StepReady]:
        """Adds a process's part."""
        times = members.own(process, event.ready_ns)
        if times is None:
            return
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
        if len(self._steps) > _MOST_WATCHED:
            self._steps.popitem(last=False)
        yield joined


_N = TypeVar("_N", int, float)

_MOST_SAMPLES: Final = 16
"""Samples of a process that wait for one of each other process."""


class Samples:
    """Joins the newest samples of the processes: shares of each process's own window."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[int, list[DeviceSample]]] = {}

    def add(
        self, process: int, event: DeviceSample, members: Members, seen: AbstractSet[int]
    ) -> Iterator[DeviceSample]:
        """Adds a process's sample."""
        if members.own(process, event.busy_ns) is None:
            return
        waiting = self._waiting.setdefault(members.strategy, {})
        own = waiting.setdefault(process, [])
        own.append(event)
        if not seen - waiting.keys() or len(own) >= _MOST_SAMPLES:
            del self._waiting[members.strategy]
            yield _joined_samples(members, waiting)


def _joined_samples(members: Members, waiting: dict[int, list[DeviceSample]]) -> DeviceSample:
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
        memory_bytes=_of_all(members, {p: event.memory_bytes for p, event in newest.items()}),
        process_memory_bytes=sum(event.process_memory_bytes for event in newest.values()),
        basis="profile" if all(event.basis == "profile" for event in everything) else "ready",
        used_bytes=_of_all(members, {p: event.used_bytes for p, event in newest.items()}),
        utilization=_of_all(members, {p: event.utilization for p, event in newest.items()}),
    )


def _of_all(members: Members, parts: dict[int, list[_N] | None]) -> list[_N] | None:
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
            yield _joined_captures(members, self._waiting.pop(members.strategy))
        waiting = self._waiting.setdefault(members.strategy, {})
        waiting[process] = event
        yield from self.settle(members, living)

    def settle(self, members: Members, living: AbstractSet[int]) -> Iterator[Capture]:
        """Yields the capture that waits for none of the living processes any more."""
        waiting = self._waiting.get(members.strategy)
        if waiting and not living - waiting.keys():
            yield _joined_captures(members, self._waiting.pop(members.strategy))


def _joined_captures(members: Members, parts: dict[int, Capture]) -> Capture:
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
        programs=events[0].programs if len(events) == 1 else [],
    )


def _moved(packed: bytes, by_ns: int) -> bytes:
    """Returns packed spans that begin later."""
    if not by_ns:
        return packed
    rows = np.frombuffer(packed, "<i8").reshape(-1, 3).copy()
    rows[:, 0] += by_ns
    return rows.tobytes()


class Placements:
    """Joins the placements of one variable: it lies on the devices of all processes."""

    def __init__(self) -> None:
        self._placed: dict[int, Placement] = {}
        self._holders: dict[int, set[int]] = {}

    def add(self, process: int, event: Placement, devices: Sequence[str]) -> Iterator[Placement]:
        """Adds what a process placed or freed, and yields what changed for the whole run."""
        holders = self._holders.setdefault(event.array, set())
        if event.action == "free":
            holders.discard(process)
            if not holders and self._placed.pop(event.array, None) is not None:
                yield event
            return
        holders.add(process)
        known = self._placed.get(event.array)
        sizes = dict.fromkeys(devices, 0) if known is None else _device_bytes(known)
        joined = sizes | _device_bytes(event)
        if known is None or joined != sizes:
            self._placed[event.array] = placed = msgspec.structs.replace(
                event, devices=list(joined), bytes_per_device=list(joined.values())
            )
            yield placed


def _device_bytes(event: Placement) -> dict[str, int]:
    return dict(zip(event.devices, event.bytes_per_device, strict=False))


_PATIENCE: Final = 16
"""Values of a name that wait for the first process to log this name."""


class Metrics:
    """Keeps each name's values of one process: the first one, if it logs this name."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}
        self._waiting: dict[tuple[str, int], list[Metric]] = {}

    def add(self, process: int, event: Metric, first: int) -> Iterator[Metric]:
        """Adds what a process logged, and yields the values that count."""
        kept: dict[str, float] = {}
        for name, value in event.values.items():
            if process == first and self._owners.get(name) != first:
                self._owners[name] = first
            owner = self._owners.get(name)
            if owner == process:
                kept[name] = value
            elif owner is None:
                waiting = self._waiting.setdefault((name, process), [])
                waiting.append(msgspec.structs.replace(event, values={name: value}))
                if len(waiting) > _PATIENCE:
                    yield from self._own(name, process)
        if kept:
            yield msgspec.structs.replace(event, values=kept)

    def settle(self, process: int) -> Iterator[Metric]:
        """Yields the values of a process that ended and that still wait."""
        for name, of in list(self._waiting):
            if of == process and name not in self._owners:
                yield from self._own(name, process)

    def _own(self, name: str, process: int) -> Iterator[Metric]:
        self._owners[name] = process
        yield from self._waiting.pop((name, process))
