"""A thread for work beside the training."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from distlab.threads import Thread

_STOP_SECONDS: Final = 2.0


class HelperThread:
    """A daemon thread that starts when it is first needed.

    It stops before the interpreter ends: inside JAX it would crash the process then. `work` must
    return soon after `stopping` is set.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._stopping = threading.Event()
        self._name = name
        self._work = work
        # What wakes the thread may be interrupted by a signal's handler that wakes it, too.
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.RLock()
        self._thread: Thread | None = None

    @property
    def stopping(self) -> bool:
        """True once the work is to end."""
        return self._stopping.is_set()

    def wake(self) -> None:
        """Ends the present or the next `rest`; starts the thread if needed."""
        if self._wakes.empty():
            self._wakes.put(None)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self.stopping:
                self._thread = Thread(self._work, name=self._name)
                _running.add(self)  # before an interrupt of the wait for the thread
                self._thread.start()

    def rest(self, seconds: float) -> None:
        """Waits, in the thread, until the time is over or `wake` is called."""
        with contextlib.suppress(Empty):
            self._wakes.get(timeout=max(0.0, seconds))

    def end(self) -> None:
        """Asks the thread to end, without waiting for it."""
        self._stopping.set()
        self._wakes.put(None)

    def stop(self) -> None:
        """Asks the thread to end and waits for it, within a limit."""
        self.end()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)


_running: weakref.WeakSet[HelperThread] = weakref.WeakSet()


def _stop_all() -> None:
    for helper in list(_running):
        helper.stop()


atexit.register(_stop_all)
