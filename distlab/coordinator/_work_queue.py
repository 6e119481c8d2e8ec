"""The queue of scheduled functions: those that wait, those that run, and their first error."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, final

from distlab.coordinator._closure_log import PERIOD_SECONDS, ClosureLog, Job, State
from distlab.coordinator.closures import Closure
from distlab.coordinator.remote_value import RemoteValue
from distlab.errors import CancelledError, ClusterError, ContextError
from distlab.events import sink
from distlab.strategies.workers import current_worker
from distlab.variables.server_traffic import Figures

_MOST_WAITING: Final = 256 * 1024
"""The length at which `schedule` waits, as in TensorFlow."""


@final
class WorkQueue:
    """A first-in, first-out queue from which the workers take functions.

    As in TensorFlow, the first error is kept until a call of `put`, `idle` or `join` raises it,
    and the other functions go on until then. That call cancels those that wait, lets those
    that run end, raises the error and forgets it. A call that waits raises it at once.

    A call gives up after `stall_seconds` in which no function begins or ends. `on_put` is called
    when there is another function, without a lock held. A thread emits what the log counts.
    """

    def __init__(self, stall_seconds: float, log: ClosureLog) -> None:
        self._stall_seconds = stall_seconds
        self._log = log
        self._changed = threading.Condition()
        self._waiting: deque[Closure] = deque()
        self._running: dict[RemoteValue, tuple[Closure, int, float]] = {}
        self._error: BaseException | None = None
        self._listeners = 0  # calls that wait, and raise an error as soon as there is one
        self._closed = False
        self._end = threading.Event()
        self.on_put: Callable[[], None] = lambda: None
        self._last_progress = time.monotonic()
        sink.gatherers.add(self)
        # The thread keeps the queue, which does not keep the coordinator.
        threading.Thread(
            target=self._emit_until_closed, name="distlab-closure-log", daemon=True
        ).start()

    def _emit_until_closed(self) -> None:
        while not self._closed:
            self._log.active.wait()
            self._end.wait(PERIOD_SECONDS)
            self.tell(everything=False)
        self.tell()

    def tell(self, *, everything: bool = True) -> None:
        """Emits what the log has counted."""
        with self._changed:
            held: dict[int, list[tuple[Closure, float]]] = {}
            for closure, worker, since in self._running.values():
                held.setdefault(worker, []).append((closure, since))
            event = self._log.event(held, len(self._waiting), everything=everything)
        if event is not None:
            sink.recorder().emit(event)

    def note_task(
        self, job: Job, task: int, state: State, reason: str = "", at_ns: int | None = None
    ) -> None:
        """Emits that a process was lost, or returned."""
        sink.recorder().emit(self._log.task_event(job, task, state, reason, at_ns))

    def put(self, closure: Closure) -> None:
        """Adds a function."""
        with self._changed:
            self._raise_error()
            self._listen_until(lambda: len(self._waiting) < _MOST_WAITING)
            self._waiting.append(closure)
            self._log.scheduled()
            self._progressed()
        self.on_put()

    def take(self, worker: int) -> Closure | None:
        """Waits for a function and returns it; None when the queue is closed."""
        with self._changed:
            # An idle worker waits until its coordinator is dropped, which closes the queue.
            while not self._waiting and not self._closed:
                self._changed.wait()
            return self.take_now(worker)

    def take_now(
        self, worker: int, fits: Callable[[Closure], bool] = lambda _: True
    ) -> Closure | None:
        """Returns the next function for a worker, if it fits; None when the queue is closed."""
        with self._changed:
            if self._closed or not self._waiting or not fits(self._waiting[0]):
                return None
            closure = self._waiting.popleft()
            self._running[closure.result] = (closure, worker, time.monotonic())
            self._log.begun(worker)
            self._progressed()
            return closure

    def put_back(self, closure: Closure) -> None:
        """Puts the function of a lost worker at the end of the queue."""
        with self._changed:
            _, worker, since = self._running.pop(closure.result)
            self._waiting.append(closure)
            self._log.ended(worker, closure, since, "retried")
            self._progressed()

    def __len__(self) -> int:
        """Returns the number of functions that wait."""
        return len(self._waiting)

    def finished(
        self,
        closure: Closure,
        error: BaseException | None,
        figures: Figures,
        seconds: float | None = None,
    ) -> None:
        """Records that a function ended, what it read from servers and changed there.

        One of several that a worker was given took a time.
        """
        with self._changed:
            _, worker, since = self._running.pop(closure.result)
            self._log.linked(worker, figures)
            self._log.ended(worker, closure, since, "failed" if error else "done", seconds)
            if error is not None and self._error is None:
                self._error = error
                if self._listeners:
                    self._cancel(self._after_error())
            self._progressed()

    def idle(self) -> bool:
        """Returns whether all functions ended."""
        with self._changed:
            self._raise_error()
            return self._is_idle()

    def join(self) -> None:
        """Waits until all functions ended."""
        with self._changed:
            self._raise_error()
            self._listen_until(self._is_idle)

    def wait(self, ended: threading.Event) -> None:
        """Waits until a function ended."""
        if current_worker() is not None and not ended.is_set():
            raise ContextError(
                f"A function that worker {current_worker()} runs waits for the result of another "
                "one. Return what others need, and call fetch outside, after schedule."
            )
        with self._changed:
            self._wait_for(ended.is_set)

    def close(self) -> None:
        """Ends the workers' loops, and cancels the functions that wait."""
        with self._changed:
            self._closed = True
            self._end.set()
            self._log.active.set()
            self._cancel("the coordinator was dropped")

    @property
    def closed(self) -> bool:
        """True once the queue is closed."""
        return self._closed

    def _is_idle(self) -> bool:
        return not self._waiting and not self._running

    def _cancel(self, why: str) -> None:
        while self._waiting:
            closure = self._waiting.popleft()
            self._log.cancelled()
            closure.result.fail(
                CancelledError(
                    f"{closure.name} did not run, as {why}. Schedule it again to run it."
                )
            )
        self._changed.notify_all()

    def _after_error(self) -> str:
        return f"an earlier one raised {self._error!r}"

    def _listen_until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition, and raises an error if there is one before."""
        self._listeners += 1
        try:
            self._wait_for(lambda: condition() or self._error is not None)
        finally:
            self._listeners -= 1
        self._raise_error()

    def _raise_error(self) -> None:
        """Raises the first error, once nothing that was scheduled before can run."""
        if self._error is None:
            return
        self._cancel(self._after_error())
        if current_worker() is None:  # a function that runs can't wait for its own end
            self._wait_for(lambda: not self._running)
        error, self._error = self._error, None
        if error is not None:  # another thread may have raised it meanwhile
            raise error

    def _progressed(self) -> None:
        self._last_progress = time.monotonic()
        self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not condition():
            left = max(self._last_progress, began) + self._stall_seconds - time.monotonic()
            if left <= 0:
                raise ClusterError(self._stalled()) from self._error
            self._changed.wait(left)

    def _stalled(self) -> str:
        now = time.monotonic()
        running = sorted(
            (worker, now - since, c.name) for c, worker, since in self._running.values()
        )
        runs = ", ".join(
            f"worker {worker} runs {name} for {since:.0f} s" for worker, since, name in running
        )
        return (
            f"For {self._stall_seconds:g} s no function began or ended: {runs or 'none runs'}, "
            f"{len(self._waiting)} wait. If a function takes that long, make the "
            "ClusterCoordinator with a larger stall_seconds."
        )
