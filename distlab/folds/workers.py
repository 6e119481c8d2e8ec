"""The processes of a run: who they are, how far each is, and what each waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypedDict

import numpy as np

from distlab.events import (
    ClockOffset,
    DeviceSample,
    Envelope,
    Event,
    Run,
    RunEnd,
    Sharding,
    Step,
    StepReady,
    Strategy,
    Unknown,
)
from distlab.folds.joining.members import MOST_WORKERS, worker_name

_KINDS: Final = (Run, RunEnd, ClockOffset, Strategy, Sharding, Step, StepReady, DeviceSample)
_MOST_STEPS: Final = 512
"""Steps and batches of each process that its medians are of: the newest."""

_FASTEST: Final = 0.1


class WorkerColumns(TypedDict):
    """Columns of `Workers`: one row for each process of the run, those without events too."""

    name: list[str]
    task: list[str]  #: Their tasks in the cluster, such as `"chief:0"`; empty without a cluster
    process: list[int]
    host: list[str]
    pid: list[int]  #: Their process numbers on their machines
    devices: list[list[str]]  #: Among the replicas of the newest strategy
    generation: list[int]  #: How often the cluster had been started before
    offset_ms: list[float]  #: Of its clock behind that of the first process
    error_ms: list[float]  #: The largest error of this offset
    recorded: list[bool]
    status: list[str]
    message: list[str]
    steps: list[int]
    last_step: list[int]  #: The number of the newest, -1 before the first
    examples: list[int]  #: Examples of the batches that each received
    bytes: list[int]
    wait_ms: list[float]  #: For a batch, median of the newest 512
    wait_share: list[float]  #: Of the time between its newest batches
    own_ms: list[float]  #: Its program's own time between two steps, mean
    device_ms: list[float]  #: From a step's call until its devices are done, in the fastest
    step_ms: list[float]  #: From step to step, mean; of both the longest is left out


class _Worker:
    """One process."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.end: RunEnd | None = None
        self.offset_ns = 0
        self.error_ns = 0
        self.steps = 0
        self.last_step = -1
        self.examples = 0
        self.bytes = 0
        self.waits: deque[tuple[int, int]] = deque(maxlen=_MOST_STEPS)
        self._calls: deque[Step] = deque(maxlen=_MOST_STEPS)
        self._ready: dict[int, StepReady] = {}

    def call(self, event: Step) -> None:
        """Adds a step that it called."""
        self.steps += 1
        self.last_step = event.step
        if len(self._calls) == _MOST_STEPS:
            self._ready.pop(self._calls[0].step, None)
        self._calls.append(event)

    def finished(self, event: StepReady) -> None:
        """Adds the time at which its devices finished a step."""
        if self._calls and event.step >= self._calls[0].step:
            self._ready[event.step] = event

    def step_ms(self) -> float:
        """Returns the time from step to step."""
        calls = [event.time_ns for event in self._calls]
        return _mean_ms([after - before for before, after in pairwise(calls)])

    def own_ms(self) -> float:
        """Returns the time from each call's end to the next call, without waits for results."""
        return _mean_ms(
            [
                max(after.time_ns - step.dispatched_ns - after.awaited_ns, 0)
                for step, after in pairwise(self._calls)
            ]
        )

    def device_ms(self) -> float:
        """Returns how long its devices take where they wait for no other; an end is seen late."""
        taken = [
            max([*ready.ready_ns, step.dispatched_ns])
            - step.dispatched_ns
            - ready.resolution_ns / 2
            for step in self._calls
            if (ready := self._ready.get(step.step)) is not None
        ]
        return max(float(np.quantile(taken, _FASTEST)) / 1e6, 0.0) if taken else np.nan

    def wait_ms(self) -> float:
        """Returns the median wait for a batch."""
        return float(np.median([wait for _, wait in self.waits])) / 1e6 if self.waits else np.nan

    def wait_share(self) -> float:
        """Returns the share of the time from the second batch kept to the newest."""
        later = list(self.waits)[1:]
        if len(later) < 2:
            return np.nan
        period = later[-1][0] - self.waits[0][0]
        return min(sum(wait for _, wait in later) / max(period, 1), 1.0)


class Workers:
    """The processes that record a run, each by its own events."""

    def __init__(self) -> None:
        self.version = 0
        self._workers: dict[int, _Worker] = {}
        self._expected = 0
        self._strategy: Strategy | None = None
        self._strategies: dict[tuple[int, int], Strategy] = {}

    def add(self, envelopes: Iterable[Envelope]) -> None:
        """Adds events with their processes, oldest first."""
        for process, event in envelopes:
            if not isinstance(event, _KINDS):
                continue
            worker = self._workers.get(process)
            if worker is None:
                worker = self._workers[process] = _Worker()
            self._update(process, worker, event)
            self.version += 1

    def _update(self, process: int, worker: _Worker, event: Event | Unknown) -> None:
        match event:
            case Step():
                worker.call(event)
            case StepReady():
                worker.finished(event)
            case Sharding():
                self._batch(process, worker, event)
            case Run():
                worker.run, worker.end = event, None
                worker.offset_ns = event.clock_offset_ns
                worker.error_ns = event.clock_error_ns
                self._expected = max(self._expected, event.processes)
            case RunEnd():
                worker.end = event
            case ClockOffset():
                worker.offset_ns, worker.error_ns = event.offset_ns, event.error_ns
            case Strategy():
                self._strategies[process, event.strategy] = event
                if event.processes or self._strategy is None:
                    self._strategy = event
            case _:
                pass

    def _batch(self, process: int, worker: _Worker, event: Sharding) -> None:
        strategy = self._strategies.get((process, event.strategy))
        sizes = event.parts
        if strategy is not None and len(sizes) == len(strategy.processes):
            sizes = [n for n, of in zip(sizes, strategy.processes, strict=True) if of == process]
        worker.examples += sum(sizes)
        worker.bytes += event.bytes
        worker.waits.append((event.time_ns, event.wait_ns))

    def columns(self) -> WorkerColumns:
        """Returns the processes of all events so far."""
        numbers = sorted({*range(min(self._expected, MOST_WORKERS)), *self._workers})
        workers = [self._workers.get(number, _Worker()) for number in numbers]
        runs = [worker.run for worker in workers]
        return {
            "name": [worker_name(number) for number in numbers],
            "task": [f"{run.job}:{run.task}" if run and run.job else "" for run in runs],
            "process": numbers,
            "host": [run.host if run else "" for run in runs],
            "pid": [run.process if run else 0 for run in runs],
            "devices": [self._devices(number) for number in numbers],
            "generation": [run.generation if run else 0 for run in runs],
            "offset_ms": [worker.offset_ns / 1e6 for worker in workers],
            "error_ms": [worker.error_ns / 1e6 for worker in workers],
            "recorded": [number in self._workers for number in numbers],
            "status": [worker.end.status if worker.end else "" for worker in workers],
            "message": [worker.end.message if worker.end else "" for worker in workers],
            "steps": [worker.steps for worker in workers],
            "last_step": [worker.last_step for worker in workers],
            "examples": [worker.examples for worker in workers],
            "bytes": [worker.bytes for worker in workers],
            "wait_ms": [worker.wait_ms() for worker in workers],
            "wait_share": [worker.wait_share() for worker in workers],
            "own_ms": [worker.own_ms() for worker in workers],
            "device_ms": [worker.device_ms() for worker in workers],
            "step_ms": [worker.step_ms() for worker in workers],
        }

    def _devices(self, process: int) -> list[str]:
        strategy = self._strategy
        if strategy is None:
            return []
        if not strategy.processes and len(self._workers) == 1:
            return list(strategy.devices)
        if len(strategy.processes) != len(strategy.devices):
            return []
        owned = zip(strategy.devices, strategy.processes, strict=True)
        return [device for device, of in owned if of == process]


def _mean_ms(times_ns: Sequence[float]) -> float:
    """Returns the mean without the longest, which may be a compilation or a saved checkpoint."""
    kept = sorted(times_ns)[:-1] if len(times_ns) > 2 else times_ns
    return float(np.mean(kept)) / 1e6 if kept else np.nan
