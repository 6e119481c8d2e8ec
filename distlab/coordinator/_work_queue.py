"""Functions that wait for a worker, those that run, and the first error among them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from distlab.coordinator.remote_value import RemoteValue
from distlab.errors import CancelledError, ClusterError

_MOST_WAITING: Final = 256 * 1024
"""As in TensorFlow: `schedule` waits when so many functions do."""


class Closure(NamedTuple):
    """A function that a worker is to run."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: RemoteValue

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.fn, "__qualname__", repr(self.fn))


@final
class WorkQueue:
    """Hands functions to workers, first come first served.

    When one fails those that wait are cancelled, and the error is raised by the
    next call that asks; then it is forgotten, as in TensorFlow.

    Args:
      stall_seconds: how long nothing may happen while somebody waits.
    """

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._changed = threading.Condition()
        self._waiting: deque[Closure] = deque()
        self._running: dict[int, tuple[Closure, float]] = {}
        self._error: BaseException | None = None
        self._closed = False
        self._progress = time.monotonic()

    def put(self, closure: Closure) -> None:
        """Adds a function.

        Raises:
          Exception: that of an earlier function.
          ClusterError: there is no room, and no worker gets on.
        """
        with self._changed:
            self._raise_error()
            self._wait_for(lambda: len(self._waiting) < _MOST_WAITING)
            self._waiting.append(closure)
            self._note_progress()

    def take(self, worker: int) -> Closure | None:
        """Waits for a function to run; None when the queue was closed."""
        with self._changed:
            # An idle worker waits for as long as its coordinator lives, which closes the queue.
            while not self._waiting and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            closure = self._waiting.popleft()
            self._running[worker] = (closure, time.monotonic())
            self._note_progress()
            return closure

    def finished(self, worker: int, error: BaseException | None = None) -> None:
        """Notes that a worker's function ended, and how."""
        with self._changed:
            del self._running[worker]
            if error is not None and self._error is None:
                self._error = error
                self._cancel("an earlier one raised " + repr(error))
            self._note_progress()

    def idle(self) -> bool:
        """Says whether all functions ended.

        Raises:
          Exception: that of a function.
        """
        with self._changed:
            self._raise_error()
            return self._is_idle()

    def join(self) -> None:
        """Waits until all functions ended.

        Raises:
          Exception: that of a function.
          ClusterError: no worker gets on.
        """
        with self._changed:
            self._wait_for(self._is_idle)
            self._raise_error()

    def wait(self, over: threading.Event) -> None:
        """Waits until a result is there.

        Raises:
          ClusterError: no worker gets on.
        """
        with self._changed:
            self._wait_for(over.is_set)

    def close(self) -> None:
        """Lets the workers end; what waits is cancelled."""
        with self._changed:
            self._closed = True
            self._cancel("the coordinator is gone")
            self._changed.notify_all()

    def _is_idle(self) -> bool:
        return not self._waiting and not self._running

    def _cancel(self, why: str) -> None:
        while self._waiting:
            closure = self._waiting.popleft()
            closure.result.fail(CancelledError(f"{closure.name} did not run, as {why}."))

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _note_progress(self) -> None:
        self._progress = time.monotonic()
        self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not condition():
            left = max(self._progress, began) + self._stall_seconds - time.monotonic()
            if left <= 0:
                raise ClusterError(self._stalled())
            self._changed.wait(left)

    def _stalled(self) -> str:
        now = time.monotonic()
        runs = ", ".join(
            f"worker {worker} runs {closure.name} for {now - since:.0f} s"
            for worker, (closure, since) in sorted(self._running.items())
        )
        return (
            f"For {self._stall_seconds:g} s no function began or ended: {runs or 'none runs'}, "
            f"{len(self._waiting)} wait. If a function takes that long give "
            "ClusterCoordinator a larger stall_seconds."
        )
