"""Calls a logger for a recording's events, in a thread of its own.

It is one more reader of the ring, without a pin: the training neither waits for a logger nor
keeps more events for it. What the ring dropped before a slow logger came to it counts as lost.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from distlab.errors import ArgumentTypeError
from distlab.events import Error, Event, Lost, Run, RunEnd, Unknown
from distlab.recording.ring import Ring
from distlab.text.shown import shown, shown_clause, shown_text
from distlab.threads import Thread
from distlab.tracking.logger import Logger
from distlab.tracking.relay import Relay


class _Guarded:
    """Calls a logger, and counts and reports what it raises; gives it up where `start` raises."""

    def __init__(self, logger: Logger, report: Callable[[BaseException], None]) -> None:
        self.calls = self.failures = 0
        self._logger = logger
        self._report = report
        self._given_up = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        return partial(self._call, name)

    def _call(self, name: str, *args: Any) -> None:
        if self._given_up:
            return
        self.calls += 1
        try:
            getattr(self._logger, name)(*args)
        except BaseException as error:  # noqa: BLE001 - nothing of a logger ends the training
            self.failures += 1
            self._given_up = name == "start"
            self._report(error)


_POLL_SECONDS: Final = 0.2
_AT_ONCE: Final = 4_096
_CLOSE_SECONDS: Final = 30.0


class LoggerThread:
    """Feeds a logger from a ring until it is closed, with the events that a run file would have."""

    def __init__(
        self,
        ring: Ring,
        logger: Logger,
        path: Path | None,
        called: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = type(logger).__name__
        self._ring = ring
        self._called = called
        self._guarded = _Guarded(logger, self._report)
        self._relay = Relay(cast("Logger", self._guarded), path)
        standing, pin = ring.pin()
        ring.unpin(pin)
        self._before: list[Event] | None = [e for e in standing if not isinstance(e, Run)]
        self._cursor = pin.cursor
        self._own: list[Run] = []
        self._lost = self._lost_told = 0
        self._begun = threading.Event()
        self._ending = threading.Event()
        self._end: RunEnd | None = None
        self._failure = ""
        self._thread = Thread(self._log_on, name=f"distlab logger {self.name}")
        self._thread.start()

    def announce(self, run: Run) -> None:
        """Adds the recording's own `Run` event. Call it before the ring receives the event."""
        self._own.append(run)
        self._begun.set()

    def end(self, end: RunEnd) -> None:
        """Asks the logger to end, without waiting for it. Call it before `join`."""
        self._end = end
        self._ending.set()

    def join(self, until: float) -> None:
        """Waits for the logger to end."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            waiting = self._ring.end - self._cursor
            reason = f"it had not ended {_CLOSE_SECONDS:g} s after the recording"
            self._tell_lost(max(1, waiting), reason)

    def _log_on(self) -> None:
        try:
            while not self._ending.wait(_POLL_SECONDS):
                if self._begun.is_set():
                    self._pass_on()
            self._pass_on()
            self._relay.finish(self._end)
            self._tell_failures()
            self._tell_missed()
        except Exception as error:  # noqa: BLE001 - an event that nobody foresaw
            self._tell_error(type(error).__name__, shown_text(error))
            self._warn(f"ended early: {type(error).__name__}: {shown_clause(error)}.")
            self._relay.abandon("The logger ended early.")

    def _pass_on(self) -> None:
        """Passes on all events up to now."""
        if self._before is not None:
            for known in (*self._own[:1], *self._before):
                self._relay.add(known)
            self._before = None
        target = self._ring.end
        moved = self._cursor < target
        while self._cursor < target:
            chunk = self._ring.since(self._cursor, _AT_ONCE)
            self._lost += chunk.lost
            if chunk.lost and not self._lost_told:
                self._tell_missed()
            for event in filter(self._belongs, chunk.events):
                self._relay.add(event)
            self._cursor = chunk.cursor
        if moved:
            self._relay.flush()
            self._called()

    def _belongs(self, event: Event | Unknown) -> bool:
        if isinstance(event, Run):
            return any(event is own for own in self._own[1:])
        return not isinstance(event, RunEnd)

    def _report(self, error: BaseException) -> None:
        """Reports the first exception at once; the others are counted."""
        self._failure = f"{type(error).__name__}: {shown_clause(error)}"
        if self._guarded.failures == 1:
            self._tell_error(type(error).__name__, shown_text(error))
            self._warn(f"raised {self._failure}. The training goes on.")

    def _tell_failures(self) -> None:
        failures, calls = self._guarded.failures, self._guarded.calls
        if failures > 1:
            kind = self._failure.partition(":")[0]
            self._tell_error(kind, f"{failures} of {calls} calls raised, at last {self._failure}")

    def _tell_error(self, kind: str, message: str) -> None:
        where = f"the logger {self.name}"
        event = Error(time_ns=time.monotonic_ns(), where=where, type=kind, message=message[:2_000])
        self._ring.append(event)

    def _tell_missed(self) -> None:
        missed, self._lost_told = self._lost - self._lost_told, self._lost
        if missed:
            self._tell_lost(missed, "it could not keep up with the events")

    def _tell_lost(self, count: int, why: str) -> None:
        reason = f"The logger {self.name} missed events: {why}."
        self._ring.append(Lost(time_ns=time.monotonic_ns(), count=count, reason=reason))
        self._warn(f"missed {count} events: {why}.")

    def _warn(self, what: str) -> None:
        # Where warnings are errors, one raised here would only end this thread.
        with contextlib.suppress(RuntimeWarning):
            warnings.warn(f"The logger {self.name} {what}", RuntimeWarning, stacklevel=2)


def close_all(threads: Iterable[LoggerThread], end: RunEnd) -> None:
    """Ends loggers side by side, and waits for them within a limit."""
    open_threads = list(threads)
    for thread in open_threads:
        thread.end(end)
    until = time.monotonic() + _CLOSE_SECONDS
    for thread in open_threads:
        thread.join(until)


def checked_loggers(loggers: Any) -> list[Logger]:
    """Returns the loggers of a recording."""
    if isinstance(loggers, str | bytes | Logger) or not isinstance(loggers, Iterable):
        raise ArgumentTypeError(
            f"loggers is a list of loggers, got {shown(loggers)}. Write "
            'loggers=[dl.loggers.TensorBoard("logs")].'
        )
    given = list(loggers)
    for logger in given:
        if not isinstance(logger, Logger):
            raise ArgumentTypeError(
                f"A logger derives from distlab.loggers.Logger, got a {type(logger).__name__}: "
                f"{shown(logger)}. Derive your class from it."
            )
    return given
