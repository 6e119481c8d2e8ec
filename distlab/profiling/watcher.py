"""The watcher: finds out how busy the devices are, off the hot path.

A thread polls the outputs of steps for the time at which each device is done, mostly when
the steps' usual durations let expect that. Polling costs time, more when steps are short,
so it happens in windows: back to back where that costs little, and with gaps between them
where steps last less than some milliseconds. Every step of a window is watched, so that
a sample holds for the whole window.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import jax

from distlab.devices import jax_internals
from distlab.events import Capture, DeviceSample, Event, Lost
from distlab.profiling.busy import StrategyActivity
from distlab.profiling.helper_thread import HelperThread
from distlab.profiling.nvml import gpu_use
from distlab.profiling.own_lines import OwnLines

_CYCLE_SECONDS: Final = 0.2
_MOST_STEPS: Final = 128
_FEWEST_STEPS: Final = 4
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.01
_COST_AT_FIRST: Final = 0.02
"""The share of a core that watching may use at first, the callers' part included."""

_COST: Final = 0.005
"""The share that it may use later. Steps take later what they take at first."""

_FIRST_SECONDS: Final = 20.0
"""The seconds of the larger share after the newest program was compiled."""

_LONGEST_REST: Final = 1.0
"""The longest time between two windows, in seconds."""

_WINDOWS_AVERAGED: Final = 4
"""The windows of which the cost is a running mean: one alone may be that of a busy machine."""

_QUIET_WINDOWS: Final = 4
"""Windows without work that are reported before a strategy is no longer watched."""

_LOOKS_BETWEEN: Final = 0.25
"""The share of samples of an idle device's program that come at a moment of their own."""

_SLEEP_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 0.1
_FLUSH_SECONDS: Final = 1.0

_own = jax_internals.for_another_thread

_Dispatched: TypeAlias = tuple[int, int, int, jax.Array]


class Plan(NamedTuple):
    """The timing of windows."""

    window: float
    gap: float  # Seconds between windows in which nothing is watched; 0 for none


def plan(interval: float, used: float, window: float = 0.0, cost: float = _COST_AT_FIRST) -> Plan:
    """Returns a timing that costs little."""
    share = min(1.0, cost / max(used, 1e-6))
    wanted = max(_CYCLE_SECONDS * share, _FEWEST_STEPS * interval)
    if wanted > 0.7 * _CYCLE_SECONDS:
        return Plan(_CYCLE_SECONDS, 0.0)
    # A window lasts longer than planned where Python is busy: the rest is longer then.
    rest = max(wanted, window) * (1 / share - 1)
    return Plan(wanted, min(rest, _LONGEST_REST))


class Watcher:
    """Watches the results that `watch` receives, each step of a window while it is `listening`."""

    def __init__(
        self, emit: Callable[[Event], None], after_window: Callable[[], None] = lambda: None
    ) -> None:
        self._emit = emit
        self._after_window = after_window
        self._thread = HelperThread("distlab watcher", self._follow)
        self._inbox: deque[_Dispatched] = deque()
        self._compiled_s = time.monotonic()
        self.missed_step = False
        self.listening = True
        self.callers_ns = 0
        self._asleep = True
        self._flushing = threading.Event()
        self._flushed = threading.Event()
        self._activities: dict[int, StrategyActivity] = {}
        self._profiles: dict[int, Capture] = {}
        self._dispatched_ns: list[int] = []
        self._edge_ns = 0
        self._plan = Plan(_CYCLE_SECONDS, 0.0)
        self._used = 0.0
        self._lines = OwnLines(emit)
        self._random = random.Random(0)  # noqa: S311 - the program's own numbers stay as seeded

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """Watches `result` until it is ready, for some of the steps. Never waits."""
        if not self.listening:
            self.missed_step = True
            return
        began = time.perf_counter_ns()
        self._inbox.append((strategy, step, time_ns, _own(result)))
        self._lines.thread = threading.get_ident()
        if self._asleep:
            self._thread.wake()
        self.callers_ns += time.perf_counter_ns() - began

    def profiled(self, capture: Capture) -> None:
        """Uses a profile's durations of steps; see `StrategyActivity.profiled`."""
        self._profiles[capture.strategy] = capture
        activity = self._activities.get(capture.strategy)
        if activity is not None:
            activity.profiled(capture)

    def compiled(self, strategy: int) -> None:
        """Discards a profile's durations: new programs take other times, which are learnt."""
        self._compiled_s = time.monotonic()
        self._lines.note_call()
        self._profiles.pop(strategy, None)
        activity = self._activities.get(strategy)
        if activity is not None:
            activity.profiled(None)

    def flush(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Waits until the watched steps are ready and their events emitted."""
        if self._asleep and not self._inbox:
            return
        self._flushed.clear()
        self._flushing.set()
        self._thread.wake()
        self._flushed.wait(seconds)

    def _follow(self) -> None:
        while not self._thread.stopping:
            if self._activities or self._inbox:
                self._asleep = False
                try:
                    self._watch_window()
                except Exception as error:  # noqa: BLE001 - devices that were shut down, for one
                    self._give_up(error)
            if self._flushing.is_set():
                self._flushing.clear()
                self._flushed.set()
            elif not self._activities and not self._inbox and self.listening:
                self._asleep = True
                # A step that arrived before `_asleep` was set did not wake this thread.
                if not self._inbox:
                    self._thread.rest(_SLEEP_SECONDS)
            elif self._plan.gap:
                self._stop_listening()
                self._thread.rest(self._plan.gap)
        self._stop_listening()

    def _watch_window(self) -> None:
        """Watches all steps for a while, and emits how busy the devices were."""
        opened_ns = self._open()
        used_s, called_ns = time.thread_time(), self.callers_ns
        began_ns = time.monotonic_ns()
        limit_ns = opened_ns + round(self._plan.window * 1e9)
        now_ns = self._poll()
        while True:
            self._pause(limit_ns)
            now_ns = self._poll()
            if (
                now_ns >= limit_ns
                or len(self._dispatched_ns) >= _MOST_STEPS
                or self._thread.stopping
            ):
                break
            if self._flushing.is_set() and not self._in_flight():
                break
        used_s = time.thread_time() - used_s + (self.callers_ns - called_ns) / 1e9
        used = used_s / max((now_ns - began_ns) / 1e9, 1e-6)
        self._used += (used - self._used) / (_WINDOWS_AVERAGED if self._used else 1)
        # A step that was missed while the window was being opened makes its sample wrong.
        whole = not self.missed_step
        start_ns, end_ns = opened_ns, now_ns
        if self._plan.gap:
            self.listening = False
            self._poll()
            if len(self._dispatched_ns) >= _FEWEST_STEPS:
                first, last = self._dispatched_ns[0], self._dispatched_ns[-1]
                # From step to step, so that no half cycle counts, unless a burst ran ahead.
                if last - first > (now_ns - opened_ns) / 2:
                    start_ns, end_ns = max(opened_ns, first), last
            self._settle()
        self._edge_ns = end_ns
        self._lines.report(now_ns, whole=self._flushing.is_set())
        self._emit_samples(start_ns, end_ns, whole)
        self._make_plan((now_ns - opened_ns) / 1e9)
        self._after_window()

    def _stop_listening(self) -> None:
        """Releases all results; the next window begins with the steps that run then."""
        self.listening = False
        self._inbox.clear()
        for activity in self._activities.values():
            activity.forget()

    def _give_up(self, error: Exception) -> None:
        """Starts again with the next step, after an error of JAX."""
        reason = f"Watching the devices failed: {type(error).__name__}: {error}"[:2_000]
        self._emit(Lost(time_ns=time.monotonic_ns(), count=1, reason=reason))
        self._inbox.clear()
        self._activities.clear()
        self._edge_ns = 0
        self.listening = True

    def _open(self) -> int:
        """Begins to listen, if needed; returns the time at which the window begins."""
        self._dispatched_ns = []
        if not self.listening:
            self._inbox.clear()
            self.listening = True
            self.missed_step = False
            return time.monotonic_ns()
        if self._activities:
            return self._edge_ns
        begin_ns = self._inbox[0][2]
        asleep_since_ns, self._edge_ns = self._edge_ns, begin_ns
        if asleep_since_ns:
            self._receive()
            self._emit_samples(asleep_since_ns, begin_ns, whole=True)
        return begin_ns

    def _poll(self) -> int:
        """Polls all steps in flight, new ones included; returns the time of the poll."""
        self._receive()
        now_ns = time.monotonic_ns()
        for activity in self._activities.values():
            for event in activity.poll(now_ns):
                self._emit(event)
        self._lines.look(now_ns, idle=not self._in_flight())
        return now_ns

    def _receive(self) -> None:
        while self._inbox:
            strategy, step, time_ns, result = self._inbox.popleft()
            self._activity(strategy, result).add(step, time_ns, result)
            self._dispatched_ns.append(time_ns)

    def _activity(self, strategy: int, result: jax.Array) -> StrategyActivity:
        if strategy not in self._activities:
            activity = self._activities[strategy] = StrategyActivity(strategy, result)
            activity.profiled(self._profiles.get(strategy))
        return self._activities[strategy]

    def _in_flight(self) -> int:
        return sum(activity.in_flight for activity in self._activities.values())

    def _settle(self) -> None:
        """Keeps polling after a window, until its steps are done or a limit is reached."""
        limit_ns = time.monotonic_ns() + round(_SETTLE_SECONDS * 1e9)
        while self._in_flight() and not self._thread.stopping and self._poll() < limit_ns:
            self._pause(limit_ns)

    def _emit_samples(self, start_ns: int, end_ns: int, whole: bool) -> None:
        """Emits a sample for each strategy, and stops watching those without steps."""
        for strategy, activity in list(self._activities.items()):
            busy_ns = activity.close_window(start_ns, end_ns)
            if activity.quiet_windows >= _QUIET_WINDOWS:
                del self._activities[strategy]
            if whole and end_ns > start_ns:
                gpus = gpu_use(activity.devices)
                sample = DeviceSample(
                    time_ns=end_ns,
                    strategy=strategy,
                    start_ns=start_ns,
                    busy_ns=busy_ns,
                    basis=activity.basis,
                    used_bytes=None if gpus is None else gpus.used_bytes,
                    utilization=None if gpus is None else gpus.utilization,
                    memory_bytes=device_memory_bytes(activity.devices),
                    process_memory_bytes=process_memory_bytes(),
                )
                self._emit(sample)

    def _pause(self, limit_ns: int) -> None:
        """Waits until the devices are expected to be done, or a window ends."""
        now_ns = time.monotonic_ns()
        looks = [activity.next_poll_ns(now_ns) for activity in self._activities.values()]
        pause = (min([*looks, limit_ns]) - now_ns) / 1e9
        if not self._in_flight() and self._random.random() < _LOOKS_BETWEEN:
            pause *= self._random.random()
        time.sleep(min(max(pause, _SHORTEST_PAUSE), _LONGEST_PAUSE))

    def _make_plan(self, seconds: float) -> None:
        steps = len(self._dispatched_ns)
        interval = seconds / steps if steps else _CYCLE_SECONDS
        at_first = time.monotonic() - self._compiled_s < _FIRST_SECONDS
        self._plan = plan(interval, self._used, seconds, _COST_AT_FIRST if at_first else _COST)


_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def process_memory_bytes() -> int:
    """Returns the resident memory of this process; its peak where only that is known."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def device_memory_bytes(devices: Sequence[jax.Device]) -> list[int] | None:
    """Returns the memory in use on each device, None where JAX does not report it (CPU)."""
    stats = [device.memory_stats() for device in devices]
    used = [None if stat is None else stat.get("bytes_in_use") for stat in stats]
    known = [int(number) for number in used if number is not None]
    return known if known and len(known) == len(used) else None
