"""Notices that a machine is to be taken away, and the step after which all processes stop.

A machine that is taken away warns its processes, usually by SIGTERM. All processes of a program
must then stop after the same step, though each is at another one. JAX's preemption service passes
the signal on and agrees on the step: once in a program, since its processes then end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Final, final

from jax.experimental import multihost_utils

from distlab.devices import jax_internals
from distlab.errors import ContextError, WorkerError
from distlab.processes import group
from distlab.processes.group import LEFT, ProcessGroup, Worker

_POLL_SECONDS: Final = 0.2
_SLOW_POLL_SECONDS: Final = 1.0
_END_SECONDS: Final = 1.0
_NOTICE: Final = "preemption/notice"

_sigterm_time: float | None = None
"""The time of the last SIGTERM; a plain number, because a handler must take no lock."""


def watch_for_sigterm() -> Callable[[], None]:
    """Has SIGTERM noted, and not end the process; returns what undoes it."""
    try:
        before = signal.signal(signal.SIGTERM, _note)
    except ValueError as error:
        raise ContextError(
            "Python receives signals only in its main thread, and this is another one. Make it "
            "in the main thread, or give a termination_watcher_fn."
        ) from error

    def undo() -> None:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, before)

    return undo


def _sigterm_since(moment: float) -> bool:
    return _sigterm_time is not None and _sigterm_time >= moment


def _note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    global _sigterm_time
    _sigterm_time = time.monotonic()


def _polling(owner: object, look: Callable[[], bool], seconds: float) -> None:
    """Calls a function in a thread, until it returns True or its owner is gone."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(seconds) and not look():
            pass

    thread = threading.Thread(target=watch, name="distlab-preemption", daemon=True)

    def end() -> None:  # the end of the process must not find the thread in JAX
        ended.set()
        if thread is not threading.current_thread():
            thread.join(_END_SECONDS)

    weakref.finalize(owner, end)
    thread.start()


@final
class StopPoint:
    """The step after which all processes stop, which begin the same steps.

    A thread calls `is_noticed` once a second; None waits for SIGTERM.
    """

    def __init__(
        self,
        processes: ProcessGroup | None,
        is_noticed: Callable[[], bool] | None,
        *,
        begun: int = 0,
    ) -> None:
        self._processes = processes
        self._begun = begun
        self._last: int | None = None
        self._notice = _Notice()
        self._end_watching: Callable[[], None] = lambda: None
        if processes is not None:
            jax_internals.start_preemption_service()
        elif is_noticed is None:
            self._end_watching = watch_for_sigterm()
        if is_noticed is not None:
            notice = self._notice
            _polling(self, lambda: notice.look(is_noticed, processes), _SLOW_POLL_SECONDS)

    def begin(self) -> bool:
        """Returns whether all processes stop here, between two steps; if not, a step begins."""
        if self._notice.error is not None:
            raise self._notice.error
        if self._is_reached():
            return True
        self._begun += 1
        return False

    def undo(self) -> None:
        """Takes the last `begin` back: its step failed."""
        self._begun -= 1

    def go_on(self, steps: int) -> int:
        """Goes on after a stop; returns for how many steps, the fewest that a process passes."""
        if self._processes is not None:
            steps = min(map(int, self._processes.exchange("preemption", str(steps))))
        self._last = self._begun + steps
        return steps

    def close(self) -> None:
        """Lets SIGTERM do what it did before."""
        self._end_watching()

    def _is_reached(self) -> bool:
        if self._last is not None:
            return self._begun >= self._last
        if self._processes is not None:
            return multihost_utils.reached_preemption_sync_point(self._begun)
        return self._notice.is_given or _sigterm_since(self._notice.made)


@final
class _Notice:
    """The notice of a process, as a thread finds it."""

    def __init__(self) -> None:
        self.made = time.monotonic()
        self.is_given = False
        self.error: Exception | None = None

    def look(self, is_noticed: Callable[[], bool], processes: ProcessGroup | None) -> bool:
        """Returns whether there is nothing more to look for."""
        try:
            self.is_given = is_noticed()
        except Exception as error:  # noqa: BLE001 - of the user's function; raised by `begin`
            self.error = error
            return True
        if self.is_given and processes is not None:
            os.kill(os.getpid(), signal.SIGTERM)  # which JAX passes on
        return self.is_given


@final
class PreemptionWatcher:
    """Watches for SIGTERM on any worker (`tf.distribute.experimental.PreemptionWatcher`).

    Every worker makes one, once it has its strategy. SIGTERM then ends no process: the program
    looks at `preemption_message`. To save on all workers at one step, use a
    `PreemptionCheckpointHandler`.

    Raises:
      ContextError: It is made in another thread than the main one, which alone hears of signals.

    Example:
      >>> import os
      >>> import signal
      >>> import distlab as dl
      >>> watcher = dl.experimental.PreemptionWatcher()
      >>> watcher.preemption_message is None
      True
      >>> os.kill(os.getpid(), signal.SIGTERM)
      >>> watcher.preemption_message
      'This process is to be taken away.'
    """

    def __init__(self) -> None:
        self._made = made = time.monotonic()
        self._processes = processes = group.current()
        watch_for_sigterm()
        if processes is None:
            return

        def publish() -> bool:
            if not _sigterm_since(made):
                return False
            processes.kv.set(_NOTICE, str(processes.index), overwrite=True)
            return True

        _polling(self, publish, _POLL_SECONDS)

    @property
    def preemption_message(self) -> str | None:
        """The worker that is to be taken away; None as long as there is none."""
        if self._processes is None:
            return "This process is to be taken away." if _sigterm_since(self._made) else None
        worker = self._noticed()
        return None if worker is None else f"{worker} is to be taken away."

    def block_until_worker_exit(self) -> None:
        """Waits until the worker that is to be taken away has ended.

        It returns at once where there is none, or where that is this process, and at the latest
        after half an hour, or `timeout_seconds`.
        """
        processes, worker = self._processes, self._noticed()
        if processes is None or worker is None or worker.index == processes.index:
            return
        with contextlib.suppress(WorkerError):  # it was killed
            processes.awaited(f"{LEFT}/{worker.index}", worker, "its end", processes.until())

    def _noticed(self) -> Worker | None:
        if self._processes is None:
            return None
        index = self._processes.kv.find(_NOTICE)
        return None if index is None else self._processes.workers[int(index)]
