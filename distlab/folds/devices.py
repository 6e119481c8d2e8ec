"""How busy each device was, and what memory was in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from distlab.events import DeviceSample, Event, Run, Strategy
from distlab.folds._fold import Clock, Columns

_MOST_WINDOWS = 512

Floats = npt.NDArray[np.float64]


class _Track:
    """The watched windows of one strategy's devices, oldest first."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.start_s: list[float] = []
        self.end_s: list[float] = []
        self.watched_s: list[float] = []
        self.busy_s: list[Floats] = []
        self.low: list[Floats] = []
        self.high: list[Floats] = []
        self.process_bytes: list[int] = []
        self.merged = 1
        self._in_open = 0
        self.now: Floats = np.zeros(replicas)
        self.memory: list[int] | None = None
        self.used: list[int] | None = None
        self.utilization: list[float] | None = None

    def add(self, start_s: float, end_s: float, event: DeviceSample) -> None:
        """Adds a window; it joins the newest one while that is not full."""
        watched = end_s - start_s
        if watched <= 0 or len(event.busy_ns) != self.replicas:
            return
        busy = np.array(event.busy_ns, np.float64) / 1e9
        self.now, self.memory = busy / watched, event.memory_bytes
        self.used, self.utilization = event.used_bytes, event.utilization
        self.start_s.append(start_s)
        self.end_s.append(end_s)
        self.watched_s.append(watched)
        self.busy_s.append(busy)
        self.low.append(self.now)
        self.high.append(self.now)
        self.process_bytes.append(event.process_memory_bytes)
        if self._in_open:
            self._join(len(self.start_s) - 2)
        self._in_open = (self._in_open + 1) % self.merged
        if len(self.start_s) >= _MOST_WINDOWS and not self._in_open:
            for left in range(len(self.start_s) // 2):
                self._join(left)
            self.merged *= 2

    def _join(self, left: int) -> None:
        """Makes one window of the windows `left` and `left + 1`."""
        right = left + 1
        self.end_s[left] = self.end_s.pop(right)
        self.start_s.pop(right)
        self.watched_s[left] += self.watched_s.pop(right)
        self.busy_s[left] = self.busy_s[left] + self.busy_s.pop(right)
        self.low[left] = np.minimum(self.low[left], self.low.pop(right))
        self.high[left] = np.maximum(self.high[left], self.high.pop(right))
        self.process_bytes[left] = max(self.process_bytes[left], self.process_bytes.pop(right))


class Devices:
    """Busy shares of the devices of the strategy that was watched last.

    A device is busy while a step that was handed to it is not finished. Waiting
    for other devices in a collective counts as busy.

    Columns:
      device: list of device names, in replica order.
      start_s, end_s: float64 arrays: the watched windows, seconds since the run
        began.
      busy, lowest, highest: float64 arrays `(windows, devices)`: shares, 0 to
        1. Windows that were merged have their mean, and the extremes of them.
      merged: how many neighbouring windows were merged into one.
      now: float64 array `(devices,)`: shares in the newest window.
      memory: list of allocator bytes in use on each device, or None when the
        platform does not tell.
      used: list of bytes in use on each GPU by all processes, or None when NVML
        does not tell.
      utilization: list of shares in which a kernel ran on each GPU, or None.
      process_bytes: int64 array: resident memory of the whole process at each
        window's end (the most of those merged).
      simulated: true when the devices share one machine's cores.
      watched: how many windows were watched in all.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Strategy, DeviceSample)

    def __init__(self) -> None:
        self.version = 0
        self._clock = Clock()
        self._simulated = False
        self._names: dict[int, list[str]] = {}
        self._tracks: dict[int, _Track] = {}
        self._newest: int | None = None
        self._watched = 0

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            match event:
                case DeviceSample():
                    self._take(event)
                case Strategy():
                    self._names[event.strategy] = event.devices
                case Run():
                    self._clock.start(event.time_ns)
                    self._simulated = any(device.simulated for device in event.devices)
                case _:
                    pass
        self.version += bool(events)

    def _take(self, event: DeviceSample) -> None:
        start_s = self._clock.seconds(event.start_ns)
        end_s = self._clock.seconds(event.time_ns)
        track = self._tracks.setdefault(event.strategy, _Track(len(event.busy_ns)))
        track.add(start_s, end_s, event)
        self._newest = event.strategy
        self._watched += 1

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        newest = self._newest
        track = _Track(0) if newest is None else self._tracks[newest]
        names = [] if newest is None else self._names.get(newest, [])
        watched = np.array(track.watched_s).reshape(-1, 1)
        shape = (len(track.start_s), track.replicas)
        return {
            "device": [
                names[replica] if replica < len(names) else f"replica {replica}"
                for replica in range(track.replicas)
            ],
            "start_s": np.array(track.start_s),
            "end_s": np.array(track.end_s),
            "busy": np.array(track.busy_s).reshape(shape) / watched,
            "lowest": np.array(track.low).reshape(shape),
            "highest": np.array(track.high).reshape(shape),
            "merged": track.merged,
            "now": track.now,
            "memory": track.memory,
            "used": track.used,
            "utilization": track.utilization,
            "process_bytes": np.array(track.process_bytes, np.int64),
            "simulated": self._simulated,
            "watched": self._watched,
        }
