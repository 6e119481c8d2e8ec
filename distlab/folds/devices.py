"""Each device's busy share over time, its memory, and the newest capture of its activities."""

from __future__ import annotations

import math
from collections import deque
from typing import ClassVar, Final, NamedTuple, TypedDict

import numpy as np

from distlab.events import Capture, DeviceSample, Event, Run, RunEnd, Strategy
from distlab.folds._fold import Clock, Fold, replica_names
from distlab.folds.arrays import Floats, Ints

_MOST_WINDOWS = 512
_MOST_CAPTURES = 32


class Computing:
    """The part of the time with work in which devices compute, from the newest captures.

    Waiting in a collective begins in the order in which devices were started, so times with work
    differ where work does not.
    """

    def __init__(self) -> None:
        self._captures: dict[int, deque[Capture]] = {}

    def add(self, capture: Capture) -> None:
        """Adds a capture."""
        kept = self._captures.setdefault(capture.strategy, deque(maxlen=_MOST_CAPTURES))
        if kept and kept[-1].devices != capture.devices:
            kept.clear()
        if sum(capture.compute_ns):
            kept.append(capture)

    def of(self, strategy: int | None, devices: int) -> Floats:
        """Returns what each device computes of all devices' mean time with work; NaN: not known."""
        kept = self._captures.get(-1 if strategy is None else strategy)
        if not kept or len(kept[-1].devices) != devices:
            return np.full(devices, np.nan)
        compute, waiting, copy = (
            np.sum([getattr(one, name) for one in kept], axis=0, dtype=np.float64)
            for name in ("compute_ns", "waiting_ns", "copy_ns")
        )
        # Work is fitted to the times by least squares: on shared cores a thread may lack its core.
        work = [one.work_ns for one in kept if one.work_steps and sum(one.work_ns)]
        each = (
            np.median([np.divide(one, np.mean(one)) for one in work], axis=0) if work else compute
        )
        fitted = each * (np.vdot(compute, each) / np.vdot(each, each))
        computes: Floats = fitted / (compute + waiting + copy).mean()
        return computes


def computing(busy: Floats, computes: Floats) -> Floats:
    """Returns the shares computing of shares with work, `(..., devices)`; these where not known."""
    if not len(computes) or np.isnan(computes).any():
        return busy
    shares: Floats = np.minimum(busy.mean(axis=-1, keepdims=True) * computes, 1)
    return shares


class DeviceColumns(TypedDict):
    """Columns of `Devices`: the devices of the strategy that was watched last."""

    device: list[str]
    start_s: Floats
    end_s: Floats
    busy: Floats  #: Busy shares, 0 to 1, `(windows, devices)`; a merged window has its mean
    now: Floats  #: Each device's busy share in the newest window
    mean: Floats  #: Each device's busy share of all the time in which it was watched
    computes: Floats  #: What each computes of the devices' mean busy share; NaN: not known
    ended: bool  #: Whether the run has ended
    memory: list[int] | None  #: Bytes of each allocator, None where not reported
    used: list[int] | None  #: Bytes in use on each GPU by all processes, None without NVML
    utilization: list[float] | None  #: Share of time with a kernel, None without NVML
    process_bytes: Ints  #: Resident memory at each window's end, the largest of merged
    simulated: bool  #: Whether the devices share one machine's cores
    watched: int
    mesh: dict[str, int]  #: Axes of their mesh, empty for a strategy's replicas


class _Window(NamedTuple):
    """A watched time, or neighbours that are merged."""

    start_s: float
    end_s: float
    watched_s: float
    busy_s: Floats
    process_bytes: int


def _merged(left: _Window, right: _Window) -> _Window:
    return _Window(
        left.start_s,
        right.end_s,
        left.watched_s + right.watched_s,
        left.busy_s + right.busy_s,
        max(left.process_bytes, right.process_bytes),
    )


class _Windows:
    """The watched windows of one strategy's devices, oldest first."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.kept: list[_Window] = []
        self._merged = 1
        self._in_open = 0
        self.now: Floats = np.zeros(replicas)
        self.newest: DeviceSample | None = None

    def add(self, start_s: float, end_s: float, event: DeviceSample) -> None:
        """Adds a window, or extends the newest one while that is not full."""
        watched = end_s - start_s
        if watched <= 0 or len(event.busy_ns) != self.replicas:
            return
        busy = np.array(event.busy_ns, np.float64) / 1e9
        self.now, self.newest = busy / watched, event
        window = _Window(start_s, end_s, watched, busy, event.process_memory_bytes)
        self.kept.append(_merged(self.kept.pop(), window) if self._in_open else window)
        self._in_open = (self._in_open + 1) % self._merged
        if len(self.kept) >= _MOST_WINDOWS and not self._in_open:
            self.kept = [_merged(*pair) for pair in zip(*[iter(self.kept)] * 2, strict=True)]
            self._merged *= 2


class Devices(Fold[DeviceColumns]):
    """Busy shares of the devices of the strategy that was watched last.

    A device is busy while a step dispatched to it is not finished. Waiting for other
    devices in a collective counts as busy; captures tell how much of it computes. Above 512
    windows neighbours are merged.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, RunEnd, Strategy, DeviceSample, Capture)

    def __init__(self) -> None:
        self._simulated = False
        self._names: dict[int, list[str]] = {}
        self._meshes: dict[int, dict[str, int]] = {}
        self._begin()

    def _begin(self) -> None:
        """Forgets the run before, whose times count from another second 0."""
        self._clock = Clock()
        self._ended = False
        self._windows: dict[int, _Windows] = {}
        self._newest: int | None = None
        self._watched = 0
        self._computing = Computing()

    def _add(self, event: Event) -> None:
        match event:
            case DeviceSample():
                self._add_sample(event)
            case Capture():
                self._computing.add(event)
            case Strategy():
                self._names[event.strategy] = event.devices
                sizes = event.axes.values()
                if min(sizes, default=0) > 0 and math.prod(sizes) == len(event.devices):
                    self._meshes[event.strategy] = event.axes
            case Run():
                self._begin()
                self._clock.start(event.time_ns)
                self._simulated = any(device.simulated for device in event.devices)
            case RunEnd():
                self._ended = True
            case _:
                pass

    def _add_sample(self, event: DeviceSample) -> None:
        start_s = self._clock.seconds(event.start_ns)
        end_s = self._clock.seconds(event.time_ns)
        windows = self._windows.setdefault(event.strategy, _Windows(len(event.busy_ns)))
        windows.add(start_s, end_s, event)
        self._newest = event.strategy
        self._watched += 1

    def columns(self) -> DeviceColumns:
        """Returns the windows of all events so far."""
        newest = self._newest
        windows = _Windows(0) if newest is None else self._windows[newest]
        names = [] if newest is None else self._names.get(newest, [])
        kept, sample = windows.kept, windows.newest
        watched = np.array([one.watched_s for one in kept]).reshape(-1, 1)
        busy = np.array([one.busy_s for one in kept]).reshape(len(kept), windows.replicas)
        return {
            "device": replica_names(names, windows.replicas),
            "start_s": np.array([one.start_s for one in kept]),
            "end_s": np.array([one.end_s for one in kept]),
            "busy": busy / watched,
            "now": windows.now,
            "mean": busy.sum(0) / max(watched.sum(), 1e-9),
            "computes": self._computing.of(newest, windows.replicas),
            "ended": self._ended,
            "memory": sample.memory_bytes if sample else None,
            "used": sample.used_bytes if sample else None,
            "utilization": sample.utilization if sample else None,
            "process_bytes": np.array([one.process_bytes for one in kept], np.int64),
            "simulated": self._simulated,
            "watched": self._watched,
            "mesh": {} if newest is None else self._meshes.get(newest, {}),
        }


class CaptureColumns(TypedDict):
    """Columns of `Captures`: one of them, and which there are.

    Shares are of the captured time, 0 to 1; the four of a device add up to 1.
    """

    numbers: list[int]  #: Numbers of the captures that are kept, oldest first
    starts_s: list[float]  #: When each of these began, in seconds since the run began
    steps_of: list[int]  #: How many steps were dispatched during each
    number: int | None  #: The one that the rest is about; without a choice the first shown
    device: list[str]  #: Names of its devices
    start_s: float
    end_s: float
    steps: int
    asked_by: str  #: `"user"` or `"recorder"`
    compute: Floats
    waiting: Floats
    copy: Floats
    idle: Floats
    spans: list[Floats]  #: `(spans, 3)` each: begin, end (ms after `start_s`), activity
    spans_left_out: int
    profile_bytes: int


class Captures(Fold[CaptureColumns]):
    """The newest 32 short profiles of the devices, and the one that is shown first."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Capture)

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Forgets the run before, whose times count from another second 0."""
        self._clock = Clock()
        self._count = 0
        self._kept: dict[int, Capture] = {}

    def _add(self, event: Event) -> None:
        if not isinstance(event, Capture):
            self._begin()
            self._clock.start(event.time_ns)
            return
        self._kept[self._count] = event
        self._count += 1
        if len(self._kept) > _MOST_CAPTURES:
            del self._kept[next(number for number in self._kept if number != self._first_shown)]

    @property
    def _first_shown(self) -> int | None:
        """The newest capture that the user asked for, else that of most steps."""

        def rank(number: int) -> tuple[bool, int, int]:
            one = self._kept[number]
            asked = one.asked_by == "user"
            return asked, 0 if asked else one.steps, number

        return max(self._kept, key=rank, default=None)

    def columns(self, number: int | None = None) -> CaptureColumns:
        """Returns a capture by its number; by default one that was asked for, or of most steps."""
        number = number if number in self._kept else self._first_shown
        one = _NO_CAPTURE if number is None else self._kept[number]
        length_ns = max(one.time_ns - one.start_ns, 1)
        return {
            "numbers": list(self._kept),
            "starts_s": [self._clock.seconds(kept.start_ns) for kept in self._kept.values()],
            "steps_of": [kept.steps for kept in self._kept.values()],
            "number": number,
            "device": one.devices,
            "start_s": self._clock.seconds(one.start_ns),
            "end_s": self._clock.seconds(one.time_ns),
            "steps": one.steps,
            "asked_by": one.asked_by,
            "compute": np.array(one.compute_ns, np.float64) / length_ns,
            "waiting": np.array(one.waiting_ns, np.float64) / length_ns,
            "copy": np.array(one.copy_ns, np.float64) / length_ns,
            "idle": np.array(one.idle_ns, np.float64) / length_ns,
            "spans": [_spans(packed) for packed in one.spans],
            "spans_left_out": one.spans_left_out,
            "profile_bytes": one.profile_bytes,
        }


_NO_CAPTURE: Final = Capture(
    time_ns=0, strategy=0, start_ns=0, steps=0, asked_by="recorder", devices=[], compute_ns=[],
    waiting_ns=[], copy_ns=[], idle_ns=[], spans=[], spans_left_out=0, profile_bytes=0, cost_ns=0,
)  # fmt: skip


def _spans(packed: bytes) -> Floats:
    """Returns a device's spans with begins and ends in milliseconds."""
    rows = np.frombuffer(packed, "<i8").reshape(-1, 3).astype(np.float64)
    rows[:, 1] += rows[:, 0]
    rows[:, :2] /= 1e6
    return rows
