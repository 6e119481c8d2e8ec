"""Threads and wakes that are waited for, also again after an interrupt, and the end of threads.

A thread that waits notes for what, so that processes which wait for each other are found.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Final

_LOOK_SECONDS: Final = 0.5
_raise_in: Final[Any] = ctypes.pythonapi.PyThreadState_SetAsyncExc


DEVICES: Final = "a result of the devices"
ROOM: Final = "room for what it has read"
"""Waits that another thread of the same program ends."""

working: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()
"""The threads besides the program's own whose work other processes may wait for."""

_waiting: Final[dict[int, object]] = {}


@contextlib.contextmanager
def waiting(on: object) -> Iterator[None]:
    """Notes for what the calling thread waits: another thread, or what something else brings."""
    ident = threading.get_ident()
    _waiting[ident] = on
    try:
        yield
    finally:
        _waiting.pop(ident, None)


def waited_for(thread: threading.Thread) -> object | None:
    """Returns what a thread waits for, by way of other threads; None while it works."""
    on = _waiting.get(thread.ident or 0)
    return waited_for(on) if isinstance(on, threading.Thread) else on


def end_soon(thread: threading.Thread) -> None:
    """Raises `SystemExit` in a thread, which else aborts the process if it leaves C at its end."""
    if thread.ident is not None and thread.is_alive():
        _raise_in(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


class Wake:
    """Wakes one thread that waits. An interrupt may take a wake, and leaves nothing locked."""

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def set(self) -> None:
        """Wakes the thread that waits, or the next one that will."""
        try:  # noqa: SIM105 - a finaliser at the interpreter's end has no names of modules
            self._asleep.release()
        except RuntimeError:  # it is awake
            pass

    def wait(self, seconds: float) -> None:
        """Returns when it is woken, or after so many seconds."""
        self._asleep.acquire(timeout=seconds)


class Thread(threading.Thread):
    """A thread that notes its end itself: an interrupt of Python's `join` may end it too early."""

    def __init__(
        self, target: Callable[..., object], *args: Any, name: str, daemon: bool = True
    ) -> None:
        super().__init__(target=target, args=args, name=name, daemon=daemon)
        self._process = os.getpid()
        self._over = False
        # No event: an interrupt while its lock is taken could leave it locked.
        self._tell_over: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        """Calls the function."""
        try:
            super().run()
        finally:
            self._over = True
            self._tell_over.put(None)

    def is_alive(self) -> bool:
        """Returns whether its function has begun and not ended; never in a forked child."""
        return self.ident is not None and not self._over and os.getpid() == self._process

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end of the function; the thread itself does not wait."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        with waiting(self):
            while self.is_alive() and threading.current_thread() is not self:
                left = until - time.monotonic()
                if left <= 0:
                    return
                with contextlib.suppress(Empty):
                    self._tell_over.get(timeout=min(left, _LOOK_SECONDS))
                    self._tell_over.put(None)  # for others who wait
