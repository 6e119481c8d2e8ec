"""Threads that run one at a time, and wait for each other at each rendezvous.

A thread runs until it returns or reaches a rendezvous. So output is in thread
order, a debugger shows one thread at work, and nothing can deadlock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, NamedTuple, final

from distlab.devices.jax_internals import copied_context
from distlab.errors import ContextError
from distlab.user_code import line_of, warn

_LOOKS_SECONDS: Final = (15.0, 15.0, *[0.05] * 10)
"""When to look again whether a replica stands still; a loop may be at one instruction twice."""

_STILL_SHARE: Final = 0.01
"""Above this share of a core a replica computes, though each look finds it at one instruction."""

_NO_MORE: Final = "interpreter shutdown"
"""What Python says of a thread that is started while the interpreter ends."""


class Rendezvous(NamedTuple):
    """A replica's part in an operation of all replicas.

    Attributes:
      verb: The operation as error messages name it.
      value: The replica's operand.
      combine: Returns the result of each replica, from their operands in order.
    """

    verb: str
    value: Any
    combine: Callable[[list[Any]], Sequence[Any]]


class _Look(NamedTuple):
    """What a replica's thread does at one moment.

    Attributes:
      time: The moment, in seconds of the monotonic clock.
      computed: The seconds for which it has computed; 0 where the system does not tell.
      frame: The frame that it executes; None when it has ended.
      instruction: The offset of the frame's instruction, in bytes.
    """

    time: float
    computed: float
    frame: FrameType | None
    instruction: int


@final
class ReplicaThread:
    """A replica's thread, which runs only while `advance` waits for it.

    Args:
      number: The replica's number.
      body: The replica's function; its argument is this thread.

    Attributes:
      number: The replica's number.
      rendezvous: The operation at which it waits for the others; None while it runs.
      outcome: Its result of that operation.
      result: The result of its function.
    """

    def __init__(self, number: int, body: Callable[[ReplicaThread], Any]) -> None:
        self.number = number
        self.rendezvous: Rendezvous | None = None
        self.outcome: Any = None
        self.result: Any = None
        self._body = body
        self._error: BaseException | None = None
        self._ended = self._unwinding = False
        self._clock: int | None = None
        # Queues of C code: an interrupt inside of Python's semaphores would leave their locks held.
        self._go: SimpleQueue[None] = SimpleQueue()
        self._paused: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(
            target=copied_context(),
            args=(self._run,),
            name=f"distlab replica {number}",
            daemon=True,
        )

    def advance(self, waiting: ReplicaThread | None = None) -> None:
        """Runs the replica to its next rendezvous or to its end; raises its error."""
        self.rendezvous = None
        if self._ended:
            return
        if self._thread.ident is None:
            self._start()
        self._go.put(None)
        self._await_pause(waiting)
        if self._error is not None:
            raise self._error

    def _await_pause(self, waiting: ReplicaThread | None) -> None:
        """Waits until the replica pauses, and warns once if it stands still while another waits."""
        if waiting is not None:
            looks: list[_Look] = []
            for wait in _LOOKS_SECONDS:
                try:
                    self._paused.get(timeout=wait)
                except Empty:
                    looks.append(self._look())
                else:
                    return
            if _stands_still(looks):
                self._warn_that_it_stands_still(looks[-1], waiting)
        self._paused.get()

    def _look(self) -> _Look:
        """Returns what the replica's thread does now."""
        now = time.monotonic()
        frame = sys._current_frames().get(self._thread.ident or 0)
        try:
            computed = 0.0 if self._clock is None else time.clock_gettime(self._clock)
        except OSError:  # it ends just now
            frame, computed = None, 0.0
        return _Look(now, computed, frame, frame.f_lasti if frame else 0)

    def _warn_that_it_stands_still(self, look: _Look, waiting: ReplicaThread) -> None:
        assert look.frame is not None
        assert waiting.rendezvous is not None
        warn(
            f"Replica {self.number} has been at {line_of(look.frame)} for {_LOOKS_SECONDS[1]:g} s, "
            f"and replica {waiting.number} waits for it at {waiting.rendezvous.verb}. Replicas "
            "that run eagerly take turns: where that line waits for a lock that another replica "
            "holds, none goes on. Release locks before collectives and merge_calls.",
            RuntimeWarning,
        )

    def _start(self) -> None:
        try:
            self._thread.start()
        except RuntimeError as error:
            # An interrupt inside of Python's wait for the thread comes out as an error of its lock.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            # From Python 3.12 on no thread starts once the interpreter ends.
            if _NO_MORE in str(error) and threading.current_thread() is not threading.main_thread():
                raise SystemExit from None  # as in `in_flight.require_open`
            raise

    def wait_at(self, rendezvous: Rendezvous) -> Any:
        """Waits for the other replicas, in the replica's own thread; returns the outcome."""
        if threading.current_thread() is not self._thread:
            raise ContextError(
                f"{rendezvous.verb} must be called in the thread that runs the replica function, "
                f"got {threading.current_thread().name!r}. Call it there, and pass on its result."
            )
        self.rendezvous = rendezvous
        self._paused.put(None)
        self._go.get()
        if self._unwinding:
            raise _UnwindError
        return self.outcome

    def _leave(self) -> None:
        """Tells the thread to end at its next rendezvous, or before it begins."""
        self._unwinding = True
        self._go.put(None)

    def _join(self) -> None:
        # An interrupt may have left it between being started and running. It ends by itself then.
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self._clock = _clock_of_this_thread()
        self._go.get()
        try:
            if not self._unwinding:
                self.result = self._body(self)
        except _UnwindError:
            pass
        except BaseException as error:  # noqa: BLE001 - advance raises it where run was called
            self._error = error
        finally:
            self._ended = True
            self._paused.put(None)


def unwind(replicas: Sequence[ReplicaThread]) -> None:
    """Ends the replicas' threads, and waits for those that run.

    Another interrupt ends the wait. All threads were told by then, so none is left over.
    """
    for replica in replicas:
        replica._leave()
    for replica in replicas:
        replica._join()


def run_in_turn(replicas: Sequence[ReplicaThread], meet: Callable[[str | None], None]) -> None:
    """Runs the replicas to their end, one after another from rendezvous to rendezvous."""
    while True:
        waiting: ReplicaThread | None = None
        for replica in replicas:
            replica.advance(waiting)
            if replica.rendezvous is not None:
                waiting = replica
        reached = [replica.rendezvous for replica in replicas]
        met = [rendezvous for rendezvous in reached if rendezvous is not None]
        if not met:
            for replica in replicas:
                replica._join()
            meet(None)
            return
        verbs = [None if rendezvous is None else rendezvous.verb for rendezvous in reached]
        if len(set(verbs)) > 1:
            raise ContextError(
                "All replicas must call the same collectives and merge_calls in the same order, "
                f"but they are at {verbs} (None: it has returned). Call them in every replica, not "
                "under an `if` that only some enter."
            )
        meet(met[0].verb)
        outcomes = met[0].combine([rendezvous.value for rendezvous in met])
        for replica, outcome in zip(replicas, outcomes, strict=True):
            replica.outcome = outcome


def _clock_of_this_thread() -> int | None:
    """Returns the clock of the processor time that the calling thread uses, where there is one."""
    if sys.platform in {"darwin", "win32"}:
        return None
    return time.pthread_getcpuclockid(threading.get_ident())


def _stands_still(looks: Sequence[_Look]) -> bool:
    first, last = looks[0], looks[-1]
    computes = last.computed - first.computed > _STILL_SHARE * (last.time - first.time)
    places = {(look.frame, look.instruction) for look in looks}
    return first.frame is not None and len(places) == 1 and not computes


class _UnwindError(BaseException):
    """Unwinds a replica's thread after an error in another replica."""
