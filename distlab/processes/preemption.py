"""The step after which all processes stop, once one of them is to be taken away.

A machine that is taken away tells its processes before, usually by SIGTERM. All processes of a
program must then stop after the same step, though each is at another one: the devices are steps
behind Python. So each has a thread that looks for a notice in the key-value store. When there is
one, the threads hold their processes' programs between two steps for a moment, pass each other
how many steps each has begun, and let them go on up to the largest number.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Final, final

from distlab.errors import ContextError, WorkerError
from distlab.processes.group import ProcessGroup, Worker

_POLL_SECONDS: Final = 0.2
_SLOW_POLL_SECONDS: Final = 1.0
_AGREEMENT_SECONDS: Final = 60.0
_END_SECONDS: Final = 1.0

_sigterm_time: float | None = None
"""When SIGTERM came last; a plain number, because a handler must take no lock."""


def watch_for_sigterm() -> Callable[[], None]:
    """Has SIGTERM noted, and not end the process."""
    try:
        before = signal.signal(signal.SIGTERM, _note)
    except ValueError as error:
        raise ContextError(
            "Python receives signals in its main thread alone, and this is another one. Make it "
            "in the main thread, or give a termination_watcher_fn."
        ) from error

    def undo() -> None:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, before)

    return undo


def sigterm_since(moment: float) -> bool:
    """Returns whether SIGTERM came after a moment."""
    return _sigterm_time is not None and _sigterm_time >= moment


def _note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    global _sigterm_time
    _sigterm_time = time.monotonic()


def end_thread(ended: threading.Event, thread: threading.Thread) -> None:
    """Ends a thread that waits for an event; the end of the process must not find it in JAX."""
    ended.set()
    if thread is not threading.current_thread():
        thread.join(_END_SECONDS)


_NOTICE: Final = "preemption/notice"


def noticed_worker(processes: ProcessGroup) -> Worker | None:
    """Returns the process that last said that it will be taken away; None when there is none."""
    index = processes.kv.find(_NOTICE)
    return None if index is None else processes.workers[int(index)]


def give_notice(processes: ProcessGroup) -> None:
    """Tells the other processes that this one is to be taken away."""
    processes.kv.set(_NOTICE, str(processes.index), overwrite=True)


@final
class StopAgreement:
    """Counts steps, and says after which of them all processes stop.

    All processes must make theirs in the same order.

    Args:
      processes: The processes; None for a program of one.
      is_noticed: Returns whether this process was told that it will be taken away.
      begun: The number of steps that have begun already.
      is_slow: Whether `is_noticed` takes long, so that a thread calls it once a second.
    """

    def __init__(
        self,
        processes: ProcessGroup | None,
        is_noticed: Callable[[], bool],
        *,
        begun: int = 0,
        is_slow: bool = False,
    ) -> None:
        self._processes = processes
        self._is_noticed = is_noticed
        self._has_thread = processes is not None or is_slow
        self._place = ""
        if processes is not None:
            self._place = f"preemption/{processes.next_number('preemption')}/"
        self._begun = begun
        self._round = 0
        self._stop: int | None = None
        self._noticed_at: float | None = None
        self._not_before: float | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: Exception | None = None
        if self._has_thread:
            seconds = _SLOW_POLL_SECONDS if is_slow else _POLL_SECONDS
            watcher = threading.Thread(
                target=_watch,
                args=(weakref.ref(self), self._ended, seconds),
                name="distlab-preemption",
                daemon=True,
            )
            weakref.finalize(self, end_thread, self._ended, watcher)
            watcher.start()

    @property
    def noticed_at(self) -> float | None:
        """When this process was told that it will be taken away."""
        return self._noticed_at

    def begin(self) -> bool:
        """Returns whether all processes stop here, between two steps; if not, a step begins."""
        if not self._has_thread:
            self._look()
        error, self._error = self._error, None
        if error is not None:
            raise error
        with self._lock:
            if self._stop is not None and self._begun >= self._stop:
                return True
            self._begun += 1
            return False

    def undo(self) -> None:
        """Takes the last `begin` back: its step failed."""
        with self._lock:
            self._begun -= 1

    def go_on(self, seconds: float | None) -> None:
        """Goes on after a stop, until the next one."""
        with self._lock:
            self._stop = None
            self._round += 1
            if seconds is None:
                self._ended.set()
            elif self._noticed_at is not None:
                self._not_before = self._noticed_at + seconds

    def close(self) -> None:
        """Ends the thread."""
        self._ended.set()

    def _look(self) -> None:
        """Looks for a notice, and agrees with the other processes when there is one."""
        if self._stop is not None:
            return
        if self._noticed_at is None and self._is_noticed():
            self._noticed_at = time.monotonic()
        due = self._noticed_at is not None and time.monotonic() >= (self._not_before or 0.0)
        if self._round and self._not_before is None:
            due = False  # the process that was told first decides when its grace is over
        processes = self._processes
        if processes is None:
            if due:
                with self._lock:
                    self._stop = self._begun
            return
        key = f"{self._place}{self._round}"
        if due:
            give_notice(processes)
            processes.kv.set(key, "", overwrite=True)
        elif processes.kv.find(key) is None:
            return
        with self._lock:  # no step begins here before the stop is known
            counts = processes.exchange(key, str(self._begun), _AGREEMENT_SECONDS)
            self._stop = max(map(int, counts))


def _watch(agreement: weakref.ref[StopAgreement], ended: threading.Event, seconds: float) -> None:
    while not ended.wait(seconds):
        watched = agreement()
        if watched is None:
            return
        try:
            watched._look()
        except WorkerError:  # a process has left; who waits for its steps will hear of it
            return
        except Exception as error:  # noqa: BLE001 - of the user's function; raised by `begin`
            watched._error = error
            return
        del watched
