"""Takes a short capture now and then while a run is recorded.

Ready times can't identify the device that makes the others wait inside of a
collective, since all devices leave it together. A profile of three steps can. It is
taken early in the run and repeated so seldom that captures cost a hundredth of the time. Up to
three more come at once where a replica seems slow or the steps have become slower; the share is
paid back later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final, Protocol

import jax

from distlab.advice.stragglers import slow_in
from distlab.errors import CaptureError
from distlab.events import Capture
from distlab.profiling.capture import Capturer
from distlab.profiling.helper_thread import HelperThread

STEPS: Final = 3
"""Steps in a capture."""

_STEPS_BEFORE: Final = 6
"""Steps that are skipped at the beginning: they compile, and their devices start unevenly."""

_STEPS_EARLY: Final = 4
"""Steps before the agreed one at which a process begins its profile."""

_SHARE: Final = 0.01
"""The share of the time that captures may take."""

_SHORTEST_SECONDS: Final = 1.0
_EARLY_SECONDS: Final = 0.5
_MOST_EARLY: Final = 3
"""Captures in a row that come early; one more would hold nothing new."""

_SLOWER: Final = 0.75
"""The rate of the steps, as a share of the highest one since the last capture, that is slower."""

_RATE_SECONDS: Final = 0.8
"""The time over which the rate of the steps counts."""

_NEAR_SECONDS: Final = 0.005
_POLL_SECONDS: Final = 0.05
_LONGEST_POLL_SECONDS: Final = 1.0
_BETWEEN_SECONDS: Final = 0.2
_WAIT_SECONDS: Final = 2.0
_READ_SECONDS: Final = 60.0
_MOST_BYTES: Final = 8 << 20


class AgreedSteps(Protocol):
    """The steps at which all processes of a run take their captures."""

    def next(self, now: int) -> int | None:
        """Returns the step of the next capture, None while there is none to be taken."""


class Schedule:
    """The times of captures: a small share of the time, and some early ones."""

    def __init__(self) -> None:
        self._taken_s = self._due_s = 0.0
        self._early = 0
        self._slow: list[int] = []
        self._since: tuple[float, int] | None = None
        self._rate = self._highest = 0.0

    def taken(self, now_s: float, cost_s: float, capture: Capture | None) -> None:
        """Notes a capture, None for one that failed."""
        early = now_s < self._due_s
        self._early = self._early + 1 if early else 0
        rest = max(cost_s / _SHARE, _SHORTEST_SECONDS)
        self._due_s = (self._due_s if early else now_s) + rest
        self._taken_s, self._since = now_s, None
        self._highest = self._rate = 0.0
        slow = [] if capture is None else slow_in(capture)[0]
        # Another replica than before was slow by chance.
        self._slow = slow if not early or slow == self._slow else []

    def is_due(self, now_s: float, step: int) -> bool:
        """Returns whether to take a capture now; to be asked several times a second."""
        if self._since is None:
            self._since = now_s, step
        since_s, first = self._since
        if now_s - since_s >= _RATE_SECONDS:
            self._rate = (step - first) / (now_s - since_s)
            self._highest = max(self._highest, self._rate)
            self._since = now_s, step
        if now_s >= self._due_s:
            return True
        if self._early >= _MOST_EARLY or now_s < self._taken_s + _EARLY_SECONDS:
            return False
        return bool(self._slow) or 0 < self._rate < _SLOWER * self._highest


class Prober:
    """Takes captures until it is stopped."""

    def __init__(
        self,
        capturer: Capturer,
        last_step: Callable[[], int],
        agreed: AgreedSteps | None = None,
    ) -> None:
        self._capturer = capturer
        self._last_step = last_step
        self._agreed = agreed
        self._thread = HelperThread("distlab prober", self._work)
        self._begin = last_step()
        try:
            self._thread.wake()
        except BaseException:  # an interrupt: nobody has the prober yet, to stop it
            self.stop()
            raise

    def stop(self) -> None:
        """Stops taking captures; one that is running goes on to its end."""
        self._thread.end()

    def _work(self) -> None:
        rest = _POLL_SECONDS
        before = self._last_step()
        times = Schedule()
        while True:
            self._thread.rest(rest)
            if self._thread.stopping:
                return
            now = self._last_step()
            moving, before = now > before, now
            if not moving or now - self._begin < _STEPS_BEFORE:
                rest = min(rest * 1.05, _LONGEST_POLL_SECONDS)
                continue
            if jax.default_backend() != "cpu":
                return  # the cost of starting a profile was measured on CPU only
            first_step = self._agree(now)
            if first_step is None:
                rest = _POLL_SECONDS
                continue
            capture, cost = self._probe(first_step)
            # Of several processes none takes one early: the others would not.
            alone = self._agreed is None
            times.taken(time.monotonic(), cost, capture if alone else None)
            self._rest_until_due(times, early=alone)
            rest, before = _POLL_SECONDS, self._last_step()

    def _rest_until_due(self, times: Schedule, *, early: bool) -> None:
        """Waits until the next capture is due."""
        while not self._thread.stopping:
            if times.is_due(time.monotonic(), self._last_step() if early else 0):
                return
            self._thread.rest(_BETWEEN_SECONDS)

    def _agree(self, now: int) -> int | None:
        """Returns the step of the next capture, -1 for any; None while it is not to be taken."""
        if self._agreed is None:
            return -1
        step = self._agreed.next(now)
        if step is None:
            return None
        # Starting a profile takes some milliseconds, so it begins a little before its step.
        while not self._thread.stopping and self._last_step() < step - _STEPS_EARLY:
            self._thread.rest(_NEAR_SECONDS)
        return None if self._thread.stopping or self._last_step() >= step else step

    def _probe(self, first_step: int) -> tuple[Capture | None, float]:
        """Takes a capture; returns it and the processor time it cost, in seconds."""
        started = time.monotonic()
        try:
            taken = self._capturer.start(STEPS, _WAIT_SECONDS, "recorder", _MOST_BYTES, first_step)
            capture = taken.result(_READ_SECONDS)
            return capture, capture.cost_ns / 1e9
        except (CaptureError, FutureTimeoutError):
            # Another profile is being taken, or the steps are too large for a short one.
            return None, time.monotonic() - started
