"""The processes of a run: who they are, how far each is, and what each waits for."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
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
from distlab.folds.arrays import Floats
from distlab.folds.joining.members import MOST_WORKERS, worker_name

_KINDS: Final = (Run, RunEnd, ClockOffset, Strategy, Sharding, Step, StepReady, DeviceSample)
_MOST_STEPS: Final = 512
"""Steps and batches of each process that its medians are of: the newest."""

_FEWEST_WATCHED: Final = 8


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
    late_ms: list[float]  #: After the first to call a step, median of the newest 512
    idle_ms: list[float]  #: From devices done to its next call, median; NaN: hardly watched
    step_ms: list[float]  #: From step to step, mean without the longest


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
        self._calls: OrderedDict[int, dict[int, int]] = OrderedDict()
        self._ready: dict[int, int] = {}

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
                worker.steps += 1
                worker.last_step = event.step
                self._call(process, event)
            case StepReady():
                self._finished(event)
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

    def _call(self, process: int, event: Step) -> None:
        calls = self._calls.setdefault(event.step, {})
        calls[process] = event.time_ns
        if len(self._calls) > _MOST_STEPS:
            step, _ = self._calls.popitem(last=False)
            self._ready.pop(step, None)

    def _finished(self, event: StepReady) -> None:
        if event.step in self._calls:
            self._ready[event.step] = max([*event.ready_ns, self._ready.get(event.step, 0)])

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
        late_ms, idle_ms = self._delays_ms(numbers)
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
            "late_ms": late_ms,
            "idle_ms": idle_ms,
            "step_ms": [self._step_ms(number) for number in numbers],
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

    def _called_by_all(self, numbers: list[int]) -> tuple[list[int], Floats]:
        """Returns the steps that all processes have called, and when each one did."""
        living = {number for number in numbers if number in self._workers}
        steps = [step for step, calls in self._calls.items() if calls.keys() >= living]
        if len(living) < 2:
            steps = []
        rows = [[self._calls[step].get(number, np.nan) for number in numbers] for step in steps]
        return steps, np.array(rows, np.float64).reshape(len(steps), len(numbers))

    def _delays_ms(self, numbers: list[int]) -> tuple[list[float], list[float]]:
        """Returns medians: from the first call of a step, and from devices done, to each call."""
        steps, times = self._called_by_all(numbers)
        late = idle = [np.nan] * len(numbers)
        if steps:
            first = np.nanmin(times, axis=1, keepdims=True)
            late = (np.median(times - first, axis=0) / 1e6).tolist()
        watched = [row for row, step in enumerate(steps) if step - 1 in self._ready]
        if len(watched) >= _FEWEST_WATCHED:
            done = np.array([[self._ready[steps[row] - 1]] for row in watched], np.float64)
            idle = (np.median(np.maximum(times[watched] - done, 0), axis=0) / 1e6).tolist()
        return late, idle

    def _step_ms(self, process: int) -> float:
        times = [calls[process] for calls in self._calls.values() if process in calls]
        if len(times) < 2:
            return np.nan
        lengths = np.diff(times)
        return float(np.mean(np.sort(lengths)[:-1] if len(lengths) > 2 else lengths)) / 1e6
