"""Failures of processes: published by the one that fails, explained by the others."""

from __future__ import annotations

import copy
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

import jax

from distlab.devices import dispatch_order, in_flight
from distlab.errors import ClusterError, DonatedError, ProgramOrderError, WorkerError
from distlab.processes import group
from distlab.processes.group import LEFT, ProcessGroup, Worker

FAILED: Final = "failed"
"""The folder of the key-value store that has the errors, by process."""

ALIVE: Final = "alive"
"""The folder in which each process shows that it lives, and how many programs it handed over."""

PARTED: Final = "parted"
"""The key of the arguments of a `ProgramOrderError`."""

_MOST_TEXT: Final = 2000
_KNOWN_SECONDS: Final = 2.0
"""An error of a collective waits so long for its cause, which a watcher learns in 0.1 s."""
_POLL_SECONDS: Final = 0.01
_OF_COLLECTIVES: Final = ("gloo", "nccl", "collective")


def publish(message: str) -> None:
    """Notes for all that this process has failed: steps of others that wait for it end."""
    own = group.current()
    if own is not None:
        note(own, FAILED, own.index, message)


def note(own: ProcessGroup, folder: str, index: int, message: str) -> None:
    """Notes something about a process for all; what was noted first stays."""
    with suppress(ClusterError):  # another process noted it, or the service is gone
        own.kv.set(f"{folder}/{index}", message[:_MOST_TEXT])


def part(own: ProcessGroup, worker: Worker, message: str, program: int) -> None:
    """Has all processes raise a `ProgramOrderError` for a worker that is elsewhere."""
    with suppress(ClusterError):  # another one parted first
        own.kv.set(PARTED, json.dumps([worker.name, worker.host, message, program]))


def explain(error: BaseException) -> None:
    """Raises the error of a lost worker in the place of one that JAX raised for it.

    The step that fails has given its variables' memory away, so reading them fails, too.
    """
    own = group.current()
    if own is not None and (_of_collective(error) or (own.failure and _of_memory(error))):
        raise _cause(own, error) from error


@contextmanager
def reading() -> Iterator[None]:
    """Explains errors of arrays that are read in a block, and counts the time as awaited."""
    try:
        with in_flight.awaiting():
            yield
    except (RuntimeError, ValueError) as error:
        explain(error)
        raise


def _cause(own: ProcessGroup, error: BaseException) -> WorkerError:
    """Returns what happened to the process for which a collective failed."""
    until = time.monotonic() + _KNOWN_SECONDS
    while own.failure is None:
        # In this order: a process notes its failure before its leave.
        left = own.kv.below(LEFT)
        found = noted(own)
        if found is not None:
            own.fail(found)
        elif left or time.monotonic() > until:
            own.fail(_suspected(own, left, error))
        else:
            time.sleep(_POLL_SECONDS)
    return copy.copy(own.failure)


def noted(own: ProcessGroup) -> WorkerError | None:
    """Returns the failure that was noted: first that of processes which parted, and so fail."""
    parted = own.kv.find(PARTED)
    if parted is not None:
        return ProgramOrderError(*json.loads(parted))
    texts = own.kv.below(FAILED)
    for worker in own.workers:
        if str(worker.index) in texts:
            return WorkerError(worker.name, worker.host, texts[str(worker.index)])
    return None


def _of_memory(error: BaseException) -> bool:
    """Returns whether an array has no memory any more; JAX reports it by several types."""
    deleted = isinstance(error, ValueError | RuntimeError) and "has been deleted" in str(error)
    return deleted or isinstance(error, DonatedError)


def _of_collective(error: BaseException) -> bool:
    """Returns whether JAX reports a failed exchange; it does so by several types."""
    text = str(error).lower()
    if isinstance(error, jax.errors.JaxRuntimeError):
        return any(word in text for word in _OF_COLLECTIVES)
    return isinstance(error, ValueError) and "gloo " in text


def _suspected(own: ProcessGroup, left: Mapping[str, str], error: BaseException) -> WorkerError:
    """Returns the error of the processes that most likely kept a collective from its end."""
    for worker in own.others:
        if str(worker.index) in left:
            return own.lost(
                worker, "Its program has ended, and this one still communicates with it."
            )
    counts = {index: int(text.split()[0]) for index, text in own.kv.below(ALIVE).items()}
    behind = [w for w in own.others if counts.get(str(w.index), 0) < dispatch_order.handed_over]
    named = behind or own.others
    names = " or ".join(worker.name for worker in named)
    return WorkerError(names, named[0].host, f"It did not come to a collective in time ({error}).")


def watch_uncaught_errors() -> None:
    """Publishes the error that ends this program, from now on."""
    if sys.excepthook is not _uncaught:
        _before.append(sys.excepthook)
        sys.excepthook = _uncaught


_before = [sys.excepthook]
"""The hooks of Python before, the present one last."""


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    own = group.current()
    if own is not None and isinstance(error, WorkerError):
        # This process is not the one that failed: it passes on which one did.
        for worker in own.workers:
            if worker.name == error.worker:
                note(own, FAILED, worker.index, error.message)
        note(own, LEFT, own.index, "")
    else:
        publish("".join(traceback.format_exception_only(error)).strip())
    _before[-1](kind, error, trace)
