"""Joins the events of several processes; see the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatchmethod

import msgspec

from distlab.events import (
    Advice,
    Capture,
    Compile,
    CopiesCompared,
    Copy,
    DeviceSample,
    Envelope,
    Error,
    Event,
    Loop,
    Lost,
    Metric,
    NotFinite,
    Placement,
    Preview,
    Reduction,
    Run,
    RunEnd,
    Sharding,
    Step,
    StepReady,
    Strategy,
)
from distlab.folds.joining.members import WORST_FIRST, Members, Numbers, StepPart, worker_name
from distlab.folds.joining.parts import (
    BatchParts,
    Metrics,
    Placements,
    Profiles,
    ReadyTimes,
    Samples,
)


class Join:
    """Joins events as they arrive; those of a run of one process pass unchanged."""

    def __init__(self) -> None:
        self._several = False
        self._runs: dict[int, Run] = {}
        self._ends: dict[int, RunEnd] = {}
        self._seen: set[int] = set()
        self._numbers = Numbers()
        self._members: dict[int, Members] = {}
        self._devices: dict[int, list[str]] = {}
        self._early: dict[tuple[int, int], list[Preview]] = {}
        self._batches = BatchParts()
        self._ready = ReadyTimes()
        self._samples = Samples()
        self._profiles = Profiles()
        self._placements = Placements()
        self._metrics = Metrics()

    def add(self, envelopes: Sequence[Envelope]) -> list[Event]:
        """Returns the events of the whole run that these complete, oldest first."""
        if not self._several:
            self._seen.update({envelope.process for envelope in envelopes})
            self._several = len(self._seen) > 1 or any(
                isinstance(event, Run) and event.processes > 1 for _, event in envelopes
            )
        if not self._several:
            return [event for _, event in envelopes if isinstance(event, Event)]
        found: list[Event] = []
        for process, event in envelopes:
            self._seen.add(process)
            found += self._join(event, process)
        return found

    @property
    def _first(self) -> int:
        return min(self._seen)

    def _living(self, members: Members) -> set[int]:
        """Returns the processes of a strategy of which more events may come."""
        return {p for p in members.replicas if p in self._seen and p not in self._ends}

    def _of(self, process: int, strategy: int) -> Members | None:
        number = self._numbers.find("strategy", process, strategy)
        return None if number is None else self._members[number]

    def _leads(self, process: int, strategy: int) -> Members | None:
        """Returns a strategy's members when this process reports what all of them do."""
        members = self._of(process, strategy)
        if members is None or process > min(p for p in members.replicas if p in self._seen):
            return None
        return members

    def _named(self, process: int, devices: Iterable[str]) -> list[str]:
        """Returns devices with the worker's name, where it is missing."""
        return [name if " " in name else f"{worker_name(process)} {name}" for name in devices]

    @singledispatchmethod
    def _join(self, event: Event, process: int) -> Iterator[Event]:
        """Yields what an event completes; kinds without a rule pass unchanged."""
        del process
        yield event

    @_join.register
    def _(self, event: Run, process: int) -> Iterator[Event]:
        first = min(self._runs, default=process)
        self._runs[process] = event
        self._ends.pop(process, None)
        if process <= first:
            yield event

    @_join.register
    def _(self, event: RunEnd, process: int) -> Iterator[Event]:
        self._ends[process] = event
        yield from self._metrics.settle(process)
        for members in self._members.values():
            living = self._living(members)
            yield from self._batches.settle(members, living)
            yield from self._profiles.settle(members, living)
        if self._ends.keys() >= self._seen:
            worst = min(self._ends, key=lambda p: (WORST_FIRST.index(self._ends[p].status), p))
            end = self._ends[worst]
            said = f"{worker_name(worst)}: {end.message}" if end.message else ""
            time_ns = max(event.time_ns for event in self._ends.values())
            yield msgspec.structs.replace(end, time_ns=time_ns, message=said)

    @_join.register
    def _(self, event: Strategy, process: int) -> Iterator[Event]:
        shared = len(set(event.processes)) > 1 and len(event.processes) == len(event.devices)
        devices = event.devices if shared else self._named(process, event.devices)
        what = (event.name, tuple(devices), None if shared else process)
        number = self._numbers.meet("strategy", process, event.strategy, what)
        if number not in self._members:
            owners = event.processes if shared else [process] * len(devices)
            self._members[number] = Members(number, owners)
            self._devices[number] = list(devices)
            yield msgspec.structs.replace(
                event, strategy=number, devices=devices, processes=list(owners)
            )

    @_join.register
    def _(self, event: Placement, process: int) -> Iterator[Event]:
        members = self._of(process, event.strategy)
        if members is None:
            return
        what = (members.strategy, event.name, tuple(event.shape))
        array = self._numbers.meet("array", process, event.array, what)
        named = self._named(process, event.devices)
        placed = msgspec.structs.replace(
            event, array=array, strategy=members.strategy, devices=named
        )
        yield from self._placements.add(process, placed, self._devices[members.strategy])

    @_join.register
    def _(self, event: Sharding, process: int) -> Iterator[Event]:
        members = self._of(process, event.strategy)
        if members is not None:
            what = (members.strategy, event.source)
            dataset = self._numbers.meet("dataset", process, event.dataset, what)
            for preview in self._early.pop((process, event.dataset), ()):
                yield from self._batches.preview(process, preview, dataset)
            if event.mesh:  # each process describes the whole batch
                if self._leads(process, event.strategy) is not None:
                    yield msgspec.structs.replace(event, strategy=members.strategy, dataset=dataset)
                return
            living = self._living(members)
            yield from self._batches.add(process, event, dataset, members, living)

    @_join.register
    def _(self, event: Preview, process: int) -> Iterator[Event]:
        dataset = self._numbers.find("dataset", process, event.dataset)
        if dataset is None:
            self._early.setdefault((process, event.dataset), []).append(event)
        else:
            yield from self._batches.preview(process, event, dataset)

    @_join.register
    def _(self, event: Compile | CopiesCompared, process: int) -> Iterator[Event]:
        members = self._leads(process, event.strategy)
        if members is not None:
            program = self._numbers.meet("program", process, event.program, (process,))
            yield msgspec.structs.replace(event, strategy=members.strategy, program=program)

    @_join.register
    def _(self, event: NotFinite, process: int) -> Iterator[Event]:
        members = self._of(process, event.strategy)
        if members is not None:
            yield msgspec.structs.replace(event, strategy=members.strategy)

    @_join.register
    def _(self, event: Step, process: int) -> Iterator[Event]:
        members = self._of(process, event.strategy)
        if members is None:
            return
        if self._leads(process, event.strategy) is None:
            at, step, number = event.time_ns, event.step, members.strategy
            yield StepPart(time_ns=at, step=step, strategy=number, examples=event.examples)
            return
        program = self._numbers.meet("program", process, event.program, (process,))
        yield msgspec.structs.replace(event, strategy=members.strategy, program=program)

    @_join.register
    def _(self, event: StepReady, process: int) -> Iterator[Event]:
        members = self._of(process, event.strategy)
        if members is not None:
            yield from self._ready.add(process, event, members)

    @_join.register
    def _(self, event: DeviceSample, process: int) -> Iterator[Event]:
        members = self._of(process, event.strategy)
        if members is not None:
            seen = self._seen & members.replicas.keys()
            yield from self._samples.add(process, event, members, seen)

    @_join.register
    def _(self, event: Capture, process: int) -> Iterator[Event]:
        members = self._of(process, event.strategy)
        if members is not None:
            named = msgspec.structs.replace(event, devices=self._named(process, event.devices))
            yield from self._profiles.add(process, named, members, self._living(members))

    @_join.register(Reduction)
    @_join.register(Copy)
    def _(self, event: Reduction | Copy, process: int) -> Iterator[Event]:
        members = self._leads(process, event.strategy)
        if members is not None:
            yield msgspec.structs.replace(event, strategy=members.strategy)

    @_join.register
    def _(self, event: Metric, process: int) -> Iterator[Event]:
        yield from self._metrics.add(process, event, self._first)

    @_join.register(Loop)
    @_join.register(Advice)
    def _(self, event: Loop | Advice, process: int) -> Iterator[Event]:
        if process == self._first:
            yield event

    @_join.register
    def _(self, event: Error, process: int) -> Iterator[Event]:
        yield msgspec.structs.replace(event, where=f"{worker_name(process)}: {event.where}")

    @_join.register
    def _(self, event: Lost, process: int) -> Iterator[Event]:
        yield msgspec.structs.replace(event, reason=f"{worker_name(process)}: {event.reason}")
