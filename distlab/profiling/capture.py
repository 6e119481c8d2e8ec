"""A capture: a short profile of the next steps, as one event.

Starting it costs the caller some microseconds; everything else happens in a
thread of its own. It ends when its steps are done or its time limit is reached,
and costs nothing afterwards.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import jax
import numpy as np

from distlab.devices import jax_internals, selection
from distlab.errors import CaptureError
from distlab.events import Capture, Error, Event, ProgramShare
from distlab.profiling.helper_thread import HelperThread
from distlab.profiling.profile import MOST_BYTES, Profile
from distlab.profiling.spans import DeviceSpans, clipped, key_of, length_ns, read_spans
from distlab.profiling.step_work import UNKNOWN, Operations, StepWork

AskedBy: TypeAlias = Literal["user", "recorder"]
WhateverRuns: TypeAlias = Callable[[], tuple[int, list[jax.Device]]]

SPANS_KEPT: Final = 4_096
"""Spans kept for each device."""

_PAUSE_SECONDS: Final = 0.001
_PROBE_SECONDS: Final = 10.0
"""The longest wait of a user's capture for the end of the recorder's."""

_SHORTEST_PROBE_NS: Final = 40_000_000
"""CPU devices take turns on the machine's cores: a few milliseconds would show one turn."""


class Capturer:
    """Takes one capture at a time: `running` sees the steps."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self.running: _Running | None = None
        self.whatever_runs: WhateverRuns | None = None
        """The devices of profiles in which no step was seen, and the number of their mesh."""

        self._emit = emit
        self._lock = threading.Lock()

    def start(
        self,
        steps: int,
        seconds: float,
        asked_by: AskedBy,
        most_bytes: int = MOST_BYTES,
        first_step: int = -1,
    ) -> Future[Capture]:
        """Begins a capture of the next steps and returns at once."""
        limit = time.monotonic() + _PROBE_SECONDS
        while True:
            with self._lock:
                before = self.running
                if before is None:
                    running = self.running = _Running(
                        steps, seconds, asked_by, most_bytes, first_step
                    )
                    break
            if asked_by == "recorder" or before.asked_by == "user":
                raise CaptureError(
                    "Only one capture can run at a time, and one is running. Wait for its "
                    "result() first."
                )
            before.enough.set()
            if not before.over.wait(max(0.0, limit - time.monotonic())):
                raise CaptureError(
                    "Only one capture can run at a time. This one waited "
                    f"{_PROBE_SECONDS:g} s for the recorder's own, whose profile is still being "
                    "read. Capture later, or record with probe=False."
                )
        thread = HelperThread("distlab capture", self._follow)
        thread.wake()
        return running.future  # `self.running` may be None by now: the capture may be done

    def finish(self, seconds: float) -> None:
        """Ends a running capture early and waits for its event."""
        running = self.running
        if running is not None:
            running.enough.set()
            running.over.wait(seconds)

    def _follow(self) -> None:
        running = self.running
        assert running is not None
        try:
            event = running.take(self.whatever_runs)
        except Exception as error:  # noqa: BLE001 - the future raises it
            self.running = None
            if running.asked_by == "user":
                self._emit(_error(error))
            running.future.set_exception(error)
        else:
            self.running = None
            self._emit(event)
            running.future.set_result(event)
        finally:
            running.over.set()
            _return_memory()


def _return_memory() -> None:
    """Gives freed memory back to the system: glibc keeps 30 MB of what profiles took."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


class _Running:
    """A capture from its start to its event."""

    def __init__(
        self, steps: int, seconds: float, asked_by: AskedBy, most_bytes: int, first_step: int
    ) -> None:
        self.asked_by = asked_by
        self._first_step = first_step
        self.future: Future[Capture] = Future()
        self.enough = threading.Event()
        self.over = threading.Event()
        self._steps = steps
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._strategy = -1
        self._seen = 0
        self._begin_ns = 0
        self._devices: list[jax.Device] = []
        self._last: jax.Array | None = None
        self._profile = Profile()

    def see(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """Notes that a step was dispatched. Never waits."""
        if self.enough.is_set() or self._strategy not in (-1, strategy) or step < self._first_step:
            return
        if self._strategy == -1:
            self._first_step = step
            self._strategy, self._begin_ns = strategy, max(time_ns, self._profile.start_ns)
            self._devices = jax_internals.devices_of(result)
        self._seen += 1
        self._last = jax_internals.for_another_thread(result)
        least_ns = _SHORTEST_PROBE_NS if self.asked_by == "recorder" else 0
        if self._seen >= self._steps and time_ns - self._begin_ns >= least_ns:
            self.enough.set()

    def take(self, whatever_runs: WhateverRuns | None) -> Capture:
        """Waits for the steps, ends the profile and reads it."""
        try:
            ended = self.enough.wait(self._seconds)
            self.enough.set()
            self._wait_until_ready()
        finally:
            end_ns = time.monotonic_ns()
            used = time.thread_time_ns()
            profile = self._profile.stop()
            self._last = None
        if not self._seen and whatever_runs is not None:
            self._strategy, self._devices = whatever_runs()
            self._begin_ns, self._first_step = self._profile.start_ns, -1
        elif not self._seen:
            when = "until the recording ended" if ended else f"within {self._seconds:g} s"
            raise CaptureError(
                f"A capture needs steps, and none was run {when}. Capture while strategy.run, or "
                "what distlab.observe returned, is being called."
            )
        if len(profile) > self._most_bytes:
            raise CaptureError(
                f"The profile of {self._seen} steps is too large to be read: "
                f"{len(profile) / 1e6:.0f} MB, of at most {self._most_bytes / 1e6:.0f}. Capture "
                "fewer steps."
            )
        operations = Operations()
        found = read_spans(profile, self._profile.anchor_ns, operations)
        keys = [key_of(device) for device in self._devices]
        if not any(key in found for key in keys):
            raise CaptureError(
                "The profile holds no operation of the strategy's devices. Capture more steps."
            )
        numbers = [number for platform, number in keys if platform == "CPU"]
        return self._event(
            [found.get(key, _IDLE) for key in keys],
            operations.work(numbers) if self._seen else UNKNOWN,
            operations.shares(numbers),
            end_ns,
            len(profile),
            time.thread_time_ns() - used,
        )

    def _wait_until_ready(self) -> None:
        """Waits, within a limit, until the last step of a user's capture is done.

        The recorder's does not: of many in flight, as many finished meanwhile as were dispatched.
        """
        seconds = self._seconds if self.asked_by == "user" else 0.0
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            try:
                if self._last is None or jax_internals.is_ready(self._last):
                    return
            except RuntimeError:  # donated to a later step, so it is or will be computed
                return
            time.sleep(_PAUSE_SECONDS)

    def _event(  # noqa: PLR0917
        self,
        found: Sequence[DeviceSpans],
        work: StepWork,
        shares: list[ProgramShare],
        end_ns: int,
        size: int,
        cost_ns: int,
    ) -> Capture:
        begin_ns = self._begin_ns
        cut = [
            DeviceSpans(*(clipped(spans, begin_ns, end_ns) for spans in device)) for device in found
        ]
        lengths = [[length_ns(spans) for spans in device] for device in cut]
        packed = [_packed(device, begin_ns) for device in cut]
        return Capture(
            time_ns=end_ns,
            strategy=self._strategy,
            start_ns=begin_ns,
            steps=self._seen,
            asked_by=self.asked_by,
            devices=[selection.name(device) for device in self._devices],
            compute_ns=[length[0] for length in lengths],
            waiting_ns=[length[1] for length in lengths],
            copy_ns=[length[2] for length in lengths],
            idle_ns=[end_ns - begin_ns - sum(length) for length in lengths],
            spans=[data for data, _ in packed],
            spans_left_out=sum(left for _, left in packed),
            profile_bytes=size,
            cost_ns=cost_ns,
            first_step=self._first_step,
            work_ns=work.step_ns,
            work_steps=work.steps,
            programs=shares,
        )


_IDLE: Final = DeviceSpans(*(np.empty((0, 2), np.int64) for _ in range(3)))


def _packed(device: DeviceSpans, begin_ns: int) -> tuple[bytes, int]:
    """Returns a device's spans as an event holds them, and the number left out."""
    rows = np.concatenate(
        [
            np.stack([s[:, 0] - begin_ns, s[:, 1] - s[:, 0], np.full(len(s), activity)], axis=1)
            for activity, s in enumerate(device)
        ]
    )
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:SPANS_KEPT].astype("<i8").tobytes(), max(0, len(rows) - SPANS_KEPT)


def _error(error: Exception) -> Error:
    return Error(
        time_ns=time.monotonic_ns(),
        where="capture",
        type=type(error).__name__,
        message=str(error)[:2_000],
    )
