"""The overhead of recording, emitted as an event every second in which there are others.

The callers' share is estimated: now and then a few of the calls are timed, and
their median stands for all. The threads' shares are their own processor time.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from distlab.events import Event, RecorderCost

_EVERY_NS: Final = 1_000_000_000
SAMPLE: Final = 16
"""Calls of each sort that are timed for one event."""

_MOST_LINES: Final = 100


class Overhead:
    """Collects costs and emits them; the next calls are to be timed while `sampling`."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        recorded: Callable[[], int],
        in_windows_ns: Callable[[], int],
    ) -> None:
        self.sampling = False  # the first calls start threads
        self._emit = emit
        self._recorded = recorded
        self._in_windows_ns = in_windows_ns
        self._start_in_windows_ns = 0
        self._lock = threading.Lock()
        self._emits: list[int] = []
        self._threads: dict[str, int] = {}
        self._reported_threads: dict[str, int] = {}
        self._start_ns = time.monotonic_ns()
        self._start_recorded = 0
        self._captures_ns = 0
        self._logs = 0
        self._logs_ns: Counter[str] = Counter()
        self._waiting = 0
        self._lost = 0

    def add_emit(self, nanoseconds: int) -> None:
        """Adds the duration of one `emit`."""
        if not self.sampling:
            return
        self._emits.append(nanoseconds)
        if len(self._emits) >= SAMPLE:
            self.sampling = False

    def add_log(self, nanoseconds: int, line: str) -> None:
        """Adds the duration of one call of `log`, which leads to one event, now or later."""
        self._logs += 1
        if line in self._logs_ns or len(self._logs_ns) < _MOST_LINES:
            self._logs_ns[line] += nanoseconds
        else:
            self._logs_ns[""] += nanoseconds

    def note_thread(self, thread: str) -> None:
        """Notes the processor time of the calling thread."""
        self._threads[f"{thread}.{threading.get_ident()}"] = time.thread_time_ns()
        if not self._emits:
            self.sampling = True

    def add_capture(self, nanoseconds: int) -> None:
        """Adds the processor time of a capture."""
        self._captures_ns += nanoseconds

    def note_backlog(self, *, waiting: int, lost: int) -> None:
        """Notes the number of events not stored yet, and of those lost in all."""
        self._waiting, self._lost = waiting, lost

    def report(self) -> None:
        """Emits the costs when the last event is a second old and there were others since."""
        end_ns = time.monotonic_ns()
        if end_ns - self._start_ns < _EVERY_NS:
            return
        if not self._lock.acquire(blocking=False):
            return
        try:
            event = self._event(end_ns)
        finally:
            self._lock.release()
        if event is not None:
            self._emit(event)

    def _event(self, end_ns: int) -> RecorderCost | None:
        recorded = self._recorded()
        events = recorded - self._start_recorded
        start_ns, self._start_ns = self._start_ns, end_ns
        # The event made here counts as recorded, too.
        self._start_recorded = recorded + 1
        in_windows = self._in_windows_ns()
        windows_ns = in_windows - self._start_in_windows_ns
        self._start_in_windows_ns = in_windows
        if events <= 0:
            return None
        captures_ns, self._captures_ns = self._captures_ns, 0
        logs, self._logs = self._logs, 0
        logs_ns, self._logs_ns = self._logs_ns, Counter()
        emits, self._emits = self._emits, []
        threads, reported = dict(self._threads), self._reported_threads
        self._reported_threads = threads
        spent = {
            name: sum(ns - reported.get(k, 0) for k, ns in threads.items() if k.startswith(name))
            for name in ("writer", "watcher")
        }
        return RecorderCost(
            time_ns=end_ns,
            start_ns=start_ns,
            events=events,
            emit_ns=_median(emits) * max(events - logs, 0) + windows_ns,
            sampled=len(emits),
            writer_ns=spent["writer"],
            watcher_ns=spent["watcher"],
            capture_ns=captures_ns,
            waiting=self._waiting,
            lost=self._lost,
            log_ns=logs_ns.total(),
            log_source=max(logs_ns, key=logs_ns.__getitem__, default=""),
        )


def _median(nanoseconds: list[int]) -> int:
    return round(statistics.median(nanoseconds)) if nanoseconds else 0
