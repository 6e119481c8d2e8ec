"""What recording itself costs, told as an event every second in which something happens.

The callers' share is estimated: now and then a few of the calls are timed, and
their median stands for all. The threads' shares are their own processor time.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Final

from distlab.events import Event, RecorderCost

_EVERY_NS: Final = 1_000_000_000
SAMPLE: Final = 16
"""Calls of each sort that are timed for one account."""


class Account:
    """Collects costs and tells them.

    Args:
      emit: takes the events.
      taken: says how many events were taken so far.
      in_windows_ns: says how long callers were held up in the watcher's windows
        so far, which is known and need not be estimated.

    Attributes:
      sampling: true while the next calls shall be timed.
    """

    def __init__(
        self,
        emit: Callable[[Event], None],
        taken: Callable[[], int],
        in_windows_ns: Callable[[], int],
    ) -> None:
        self.sampling = False  # the first calls start threads
        self._emit = emit
        self._taken = taken
        self._in_windows_ns = in_windows_ns
        self._start_in_windows_ns = 0
        self._lock = threading.Lock()
        self._emits: list[int] = []
        self._watches: list[int] = []
        self._steps = 0
        self._threads: dict[str, int] = {}
        self._told_threads: dict[str, int] = {}
        self._start_ns = time.monotonic_ns()
        self._start_taken = 0
        self._start_steps = 0
        self._captures_ns = 0
        self._waiting = 0
        self._lost = 0

    def emitted(self, nanoseconds: int) -> None:
        """Takes how long it took to hand over an event."""
        if not self.sampling:
            return
        self._emits.append(nanoseconds)
        if len(self._emits) >= SAMPLE:
            self.sampling = False

    def watched(self, nanoseconds: int) -> None:
        """Takes how long it took to hand over a result, outside of the watcher's windows."""
        self._watches.append(nanoseconds)

    def used(self, thread: str) -> None:
        """Notes the processor time of the calling thread.

        Args:
          thread: `"writer"` or `"watcher"`.
        """
        self._threads[f"{thread}.{threading.get_ident()}"] = time.thread_time_ns()
        if not self._emits:
            self.sampling = True

    def captured(self, nanoseconds: int) -> None:
        """Takes the processor time that a capture used."""
        self._captures_ns += nanoseconds

    def store(self, *, waiting: int, lost: int) -> None:
        """Takes how far the run file is behind, and how many events were lost in all."""
        self._waiting, self._lost = waiting, lost

    def tell(self, last_step: int) -> None:
        """Emits an account when the last one is a second old and something happened.

        Args:
          last_step: number of the last step.
        """
        end_ns = time.monotonic_ns()
        if end_ns - self._start_ns < _EVERY_NS:
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            event = self._event(end_ns, last_step)
        finally:
            self._lock.release()
        if event is not None:
            self._emit(event)

    def _event(self, end_ns: int, last_step: int) -> RecorderCost | None:
        taken = self._taken()
        events, steps = taken - self._start_taken, last_step - self._start_steps
        start_ns, self._start_ns = self._start_ns, end_ns
        self._start_taken, self._start_steps = taken + 1, last_step  # the account is an event, too
        in_windows = self._in_windows_ns()
        windows_ns = in_windows - self._start_in_windows_ns
        self._start_in_windows_ns = in_windows
        if events <= 0:
            return None
        captures_ns, self._captures_ns = self._captures_ns, 0
        emits, self._emits = self._emits, []
        watches, self._watches = self._watches, []
        threads, told = dict(self._threads), self._told_threads
        self._told_threads = threads
        spent = {
            name: sum(ns - told.get(k, 0) for k, ns in threads.items() if k.startswith(name))
            for name in ("writer", "watcher")
        }
        return RecorderCost(
            time_ns=end_ns,
            start_ns=start_ns,
            events=events,
            emit_ns=_median(emits) * events + _median(watches) * max(steps, 0) + windows_ns,
            sampled=len(emits) + len(watches),
            writer_ns=spent["writer"],
            watcher_ns=spent["watcher"],
            capture_ns=captures_ns,
            waiting=self._waiting,
            lost=self._lost,
        )


def _median(nanoseconds: list[int]) -> int:
    return round(statistics.median(nanoseconds)) if nanoseconds else 0
