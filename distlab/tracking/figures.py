"""distlab's own numbers of a run, once a second: its speed, its input, its devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from distlab.events import DeviceSample, Run, Sharding, Step, Strategy

_EVERY_NS: Final = 1_000_000_000


class Figures:
    """Sums events up over windows of a second, by the events' own times."""

    def __init__(self) -> None:
        self._process = 0
        self._devices: dict[int, Sequence[str]] = {}
        self._start_ns: int | None = None
        self._clear()

    def _clear(self) -> None:
        self._steps = self._examples = self._batches = 0
        self._wait_ns = self._transfer_ns = 0
        self._busy_ns: dict[str, int] = {}
        self._watched_ns: dict[str, int] = {}
        self._memory: dict[str, float] = {}

    def due(self, time_ns: int) -> bool:
        """Returns whether the window is over."""
        return self._start_ns is not None and time_ns - self._start_ns >= _EVERY_NS

    def add(self, event: object) -> None:
        """Adds an event."""
        match event:
            case Step():
                self._begin(event.time_ns)
                self._steps += 1
                self._examples += event.examples
            case Sharding():
                self._begin(event.time_ns)
                self._batches += 1
                self._wait_ns += event.wait_ns
                self._transfer_ns += event.transfer_ns
            case DeviceSample():
                self._begin(event.start_ns)
                self._add_sample(event)
            case Run():
                self._process = event.process_index
            case Strategy():
                self._devices[event.strategy] = [
                    device
                    for replica, device in enumerate(event.devices)
                    if not event.processes or event.processes[replica] == self._process
                ]
            case _:
                pass

    def _begin(self, time_ns: int) -> None:
        if self._start_ns is None:
            self._start_ns = time_ns

    def _add_sample(self, event: DeviceSample) -> None:
        names = self._devices.get(event.strategy, ())
        for place, busy_ns in enumerate(event.busy_ns):
            name = names[place] if place < len(names) else f"replica {place}"
            watched_ns = event.time_ns - event.start_ns
            self._busy_ns[name] = self._busy_ns.get(name, 0) + busy_ns
            self._watched_ns[name] = self._watched_ns.get(name, 0) + watched_ns
            if event.memory_bytes is not None:
                self._memory[f"distlab/memory_bytes/{name}"] = event.memory_bytes[place]
        self._memory["distlab/process_memory_bytes"] = event.process_memory_bytes

    def take(self, time_ns: int) -> dict[str, float]:
        """Returns the window's numbers, and begins the next one."""
        if self._start_ns is None:
            return {}
        seconds = (time_ns - self._start_ns) / 1e9
        values: dict[str, float] = {}
        if self._steps and seconds > 0:
            values["distlab/steps_per_second"] = self._steps / seconds
            if self._examples:
                values["distlab/examples_per_second"] = self._examples / seconds
        if self._batches:
            values["distlab/input_wait_ms"] = self._wait_ns / self._batches / 1e6
            values["distlab/transfer_ms"] = self._transfer_ns / self._batches / 1e6
        for name, watched_ns in self._watched_ns.items():
            if watched_ns > 0:
                values[f"distlab/busy/{name}"] = min(1.0, self._busy_ns[name] / watched_ns)
        values |= self._memory
        self._start_ns = time_ns
        self._clear()
        return values
