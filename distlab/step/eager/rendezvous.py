"""Threads that run one at a time, and wait for each other at each rendezvous.

A thread runs until it returns or reaches a rendezvous. So output is in thread
order, a debugger shows one thread at work, and nothing can deadlock.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, final

from distlab.devices.jax_internals import copied_context
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import ContextError, WorkerError
from distlab.processes import group

_NO_MORE: Final = "interpreter shutdown"
"""Python's message for a thread that is started while the interpreter ends."""


class Rendezvous(NamedTuple):
    """A replica's part in an operation of all replicas."""

    verb: str  # as messages name the operation
    value: Any  # the replica's operand
    combine: Callable[[list[Any]], Sequence[Any]]  # each replica's result of all operands


@final
class ReplicaThread:
    """A replica's thread, which runs only while `advance` waits for it."""

    def __init__(self, number: int, body: Callable[[ReplicaThread], Any]) -> None:
        self.number = number
        self.rendezvous: Rendezvous | None = None
        self.outcome: Any = None
        self.result: Any = None
        self._body = body
        self._error: BaseException | None = None
        self._ended = self._unwinding = False
        # Queues of C code: an interrupt inside of Python's semaphores would leave their locks held.
        self._go: SimpleQueue[None] = SimpleQueue()
        self._paused: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(
            target=copied_context(),
            args=(self._run,),
            name=f"distlab replica {number}",
            daemon=True,
        )

    def advance(self) -> None:
        """Runs the replica to its next rendezvous or to its end; raises its error."""
        self.rendezvous = None
        if self._ended:
            return
        if self._thread.ident is None:
            self._start()
        self._go.put(None)
        self._paused.get()
        if self._error is not None:
            raise self._error

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
        """Asks the thread to end at its next rendezvous, or before it begins."""
        self._unwinding = True
        self._go.put(None)

    def _join(self) -> None:
        # An interrupt may have left it between being started and running. It ends by itself then.
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
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
    """Ends the replicas' threads, and waits for those that run, unless another interrupt comes."""
    for replica in replicas:
        replica._leave()
    for replica in replicas:
        replica._join()


def run_in_turn(replicas: Sequence[ReplicaThread], meet: Callable[[str | None], None]) -> None:
    """Runs the replicas to their end, one after another from rendezvous to rendezvous."""
    while True:
        for replica in replicas:
            replica.advance()
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


class _UnwindError(BaseException):
    """Error that unwinds a replica's thread after one in another replica."""


@final
class ProcessMeeting:
    """The rendezvous of all processes, compared before they combine values."""

    def __init__(self, mesh: ReplicaMesh) -> None:
        self._processes = group.current() if mesh.shared else None
        self._over = self._processes is None

    def meet(self, verb: str | None) -> None:
        """Waits until the replicas of all processes are at the same rendezvous."""
        processes = self._processes
        if processes is None:
            return
        self._over = True  # the others have this process's text, whatever happens here
        received = [json.loads(t) for t in processes.exchange("eager", json.dumps([verb, None]))]
        for worker, (_, failure) in zip(processes.workers, received, strict=True):
            if failure is not None:
                raise WorkerError(worker.name, worker.host, failure)
        verbs = {
            worker.name: theirs
            for worker, (theirs, _) in zip(processes.workers, received, strict=True)
        }
        if len(set(verbs.values())) > 1:
            raise ContextError(
                "All replicas must call the same collectives and merge_calls in the same order, "
                f"but the workers are at {verbs} (None: they have returned). Call them on every "
                "worker, not under an `if` that only some enter."
            )
        self._over = verb is None

    def failed(self, error: BaseException) -> None:
        """Reports to the others that the function raised here, unless they know."""
        if self._processes is not None and not self._over:
            self._over = True
            text = f"{type(error).__name__}: {error}"
            self._processes.send("eager", json.dumps([None, text]))
