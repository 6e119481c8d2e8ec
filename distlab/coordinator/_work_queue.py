"""The queue of scheduled functions: those that wait, those that run, and their first error."""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from distlab.coordinator._closure_log import PERIOD_SECONDS, ClosureLog, Outcome
from distlab.coordinator._task_log import TaskLog
from distlab.coordinator._waits_of_workers import WaitsOfWorkers
from distlab.coordinator.closures import name_of
from distlab.coordinator.remote_value import RemoteValue
from distlab.errors import CancelledError, CapturedStateWarning, ClusterError
from distlab.events import sink
from distlab.strategies.workers import current_worker
from distlab.variables.server_traffic import Figures

_MOST_WAITING: Final = 256 * 1024
"""The length at which `schedule` waits, as in TensorFlow."""


class Closure(NamedTuple):
    """A scheduled function with its arguments and its result.

    Attributes:
      fn: The function.
      args: Its arguments.
      kwargs: Its named arguments.
      result: Its result.
      sent: What travels to a worker of another process.
      put_at: When it was scheduled, by `time.monotonic`.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: RemoteValue
    sent: Any = None
    put_at: float = 0.0

    @property
    def name(self) -> str:
        """The function's name."""
        return name_of(self.fn)


@final
class WorkQueue:
    """A first-in, first-out queue from which the workers take functions.

    As in TensorFlow, the first error is kept until a call of `put`, `idle` or `join` tells it,
    and the other functions go on until then. That call cancels those that wait, lets those
    that run end, raises the error and forgets it. A call that waits tells it at once.

    Args:
      stall_seconds: How long a call waits while no function begins or ends.
      workers: The number of workers that are threads of this process; 0 for processes.

    Attributes:
      on_put: Called when there is another function, without a lock held.
      on_cancel: Called when functions that did not begin must not run any more. May not wait.
      tasks: Is told who is lost and who returns; None where nobody can be, or nobody records.
    """

    def __init__(self, stall_seconds: float, workers: int = 0) -> None:
        self._stall_seconds = stall_seconds
        self._waits = WaitsOfWorkers(workers)
        self._changed = threading.Condition()
        self._waiting: deque[Closure] = deque()
        self._running: dict[RemoteValue, tuple[Closure, int, float]] = {}
        self._error: BaseException | None = None
        self._warnings: list[tuple[str, type[Warning]]] = []
        self._listeners = 0  # calls that wait, and tell an error as soon as there is one
        self._cancels = False  # an error is being told, and waits for those that run
        self._closed = False
        self._end = threading.Event()
        self._log: ClosureLog | None = None
        self.tasks: TaskLog | None = None
        self.on_put: Callable[[], None] = lambda: None
        self.on_cancel: Callable[[], None] = lambda: None
        self._last_progress = time.monotonic()

    def log_to(self, log: ClosureLog) -> None:
        """Has a log count the functions, and emits its events until the queue is closed."""
        self._log = log
        sink.gatherers.add(self)
        # The thread keeps the queue, which does not keep the coordinator.
        threading.Thread(
            target=self._tell_until_closed, args=(log,), name="distlab-closure-log", daemon=True
        ).start()

    def _tell_until_closed(self, log: ClosureLog) -> None:
        while not self._closed:
            log.active.wait()
            self._end.wait(PERIOD_SECONDS)
            self.tell(everything=False)
        self.tell()

    def tell(self, *, everything: bool = True) -> None:
        """Emits what the log has counted."""
        if self._log is None:
            return
        with self._changed:
            held: dict[int, list[tuple[Closure, float]]] = {}
            for closure, worker, since in self._running.values():
                held.setdefault(worker, []).append((closure, since))
            event = self._log.event(held, len(self._waiting), everything=everything)
        if event is not None:
            sink.recorder().emit(event)

    def linked(self, worker: int, figures: Figures) -> None:
        """Tells what a worker's function read from parameter servers and changed there."""
        if self._log is not None and figures:
            with self._changed:
                self._log.linked(worker, figures)

    def put(self, closure: Closure) -> None:
        """Adds a function."""
        with self._changed:
            self._tell_error()
            self._listen_until(lambda: len(self._waiting) < _MOST_WAITING)
            self._waiting.append(closure)
            if self._log is not None:
                self._log.scheduled()
            self._progressed()
        self.on_put()

    def take(self, worker: int) -> Closure | None:
        """Waits for a function and returns it; None when the queue is closed."""
        self._waits.runs_as(worker)
        with self._changed:
            # An idle worker waits until its coordinator is dropped, which closes the queue.
            while not self._waiting and not self._closed:
                self._changed.wait()
            return self.take_now(worker)

    def take_now(self, worker: int) -> Closure | None:
        """Returns a function for a worker; None when there is none, or the queue is closed."""
        with self._changed:
            if self._closed or not self._waiting:
                return None
            closure = self._waiting.popleft()
            self._running[closure.result] = (closure, worker, time.monotonic())
            if self._log is not None:
                self._log.begun(worker)
            self._progressed()
            return closure

    def put_back(self, closure: Closure) -> None:
        """Puts the function of a lost worker at the end of the queue."""
        with self._changed:
            _, worker, since = self._running.pop(closure.result)
            self._waiting.append(closure)
            if self._log is not None:
                self._log.ended(worker, closure, since, "retried")
            self._progressed()

    def give_back(self, closure: Closure) -> None:
        """Puts a function that no worker began in front, or cancels it with those that wait."""
        with self._changed:
            _, worker, _ = self._running.pop(closure.result)
            self._waiting.appendleft(closure)
            if self._log is not None:
                self._log.given_back(worker)
            if self._cancels:
                self._cancel(self._after_error())
            self._progressed()

    def finished(self, closure: Closure, error: BaseException | None = None) -> None:
        """Records that a function ended."""
        with self._changed:
            _, worker, since = self._running.pop(closure.result)
            if self._log is not None:
                outcome: Outcome = "done" if error is None else "failed"
                self._log.ended(worker, closure, since, outcome)
            if error is not None and self._error is None:
                self._error = error
                if self._listeners:
                    self._cancel_for_error()
            self._progressed()

    def idle(self) -> bool:
        """Returns whether all functions ended."""
        with self._changed:
            self._tell_error()
            return self._is_idle()

    def join(self) -> None:
        """Waits until all functions ended."""
        with self._changed:
            self._tell_error()
            self._listen_until(self._is_idle)

    def wait(self, ended: threading.Event) -> None:
        """Waits until a function ended."""
        with self._changed, self._waits.waiting(ended):
            self._waits.require_end(
                ended,
                {closure.result.ended: worker for closure, worker, _ in self._running.values()},
                may_be_cancelled=self._error is not None,
            )
            self._wait_for(ended.is_set)

    def close(self) -> None:
        """Ends the workers' loops, and cancels the functions that wait."""
        with self._changed:
            self._closed = True
            self._end.set()
            if self._log is not None:
                self._log.active.set()
            self._cancel("the coordinator was dropped")

    @property
    def logged(self) -> bool:
        """Whether what the functions do is counted."""
        return self._log is not None

    @property
    def waits(self) -> bool:
        """Whether a function waits for a worker."""
        return bool(self._waiting)

    def first(self) -> Closure | None:
        """Returns the function that waits longest, without taking it."""
        with self._changed:
            return self._waiting[0] if self._waiting else None

    @property
    def closed(self) -> bool:
        """Whether the queue is closed."""
        return self._closed

    def _is_idle(self) -> bool:
        return not self._waiting and not self._running

    def _cancel(self, why: str) -> None:
        while self._waiting:
            closure = self._waiting.popleft()
            if self._log is not None:
                self._log.cancelled()
            closure.result.fail(
                CancelledError(
                    f"{closure.name} did not run, as {why}. Schedule it again to run it."
                )
            )
        self._changed.notify_all()

    def _cancel_for_error(self) -> None:
        self._cancels = True
        self._cancel(self._after_error())
        self.on_cancel()

    def _after_error(self) -> str:
        return f"an earlier one raised {self._error!r}"

    def _listen_until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition, and tells an error if there is one before."""
        self._listeners += 1
        try:
            self._wait_for(lambda: condition() or self._error is not None)
        finally:
            self._listeners -= 1
        self._tell_error()

    def warn(self, message: str, category: type[Warning] = CapturedStateWarning) -> None:
        """Has the next call of `put`, `idle` or `join` warn; by default of captured state."""
        with self._changed:
            self._warnings.append((message, category))

    def _tell_error(self) -> None:
        """Raises the first error, once nothing that was scheduled before it is told can run."""
        while self._warnings:
            message, category = self._warnings.pop(0)
            warnings.warn(message, category, stacklevel=4)
        if self._error is None:
            return
        self._cancel_for_error()
        if current_worker() is None:  # a function that runs can't wait for its own end
            self._wait_for(lambda: not self._running)
        error, self._error = self._error, None
        self._cancels = False
        if error is not None:  # another thread may have told it meanwhile
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
