"""Errors of one process that the others raise, too."""

from __future__ import annotations

import msgspec

from distlab import errors
from distlab.errors import DistlabError, WorkerError
from distlab.processes.group import Worker
from distlab.text.shown import shown_text


class Fault(msgspec.Struct, frozen=True):
    """An error of another process: the name of its class, and its message."""

    kind: str
    message: str


def fault_of(error: Exception) -> Fault:
    """Returns an error as it is sent to other processes."""
    return Fault(type(error).__name__, shown_text(error))


def raise_fault(fault: Fault, worker: Worker) -> None:
    """Raises another worker's error."""
    kind = getattr(errors, fault.kind, None)
    if isinstance(kind, type) and issubclass(kind, DistlabError) and kind is not WorkerError:
        raise kind(f"{worker} has met an error: {fault.message}")
    raise WorkerError(worker.name, worker.host, f"{fault.kind}: {fault.message}")
