"""The order in which this process hands programs over several processes to the devices.

Processes that hand over programs in different orders compute wrong numbers, or deadlock:
a collective meets whichever collective the others are at. So one thread dispatches all of them,
and each is noted here, for a guard that compares the processes.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Final, NamedTuple

from distlab.errors import ContextError


class Dispatch(NamedTuple):
    """A program that was handed over; its fingerprint is the same in all processes."""

    name: str
    fingerprint: str


noted: SimpleQueue[Dispatch] | None = None
"""The programs handed over since the guard last looked; None while nobody guards."""

handed_over = 0
"""The number of programs handed over while a guard looks on."""

_owner: threading.Thread | None = None
_refusal: Exception | None = None
_LENGTH: Final = 12


def fingerprint(parts: Iterable[str]) -> str:
    """Returns a short text that differs where the parts do."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_LENGTH]


def watch() -> SimpleQueue[Dispatch]:
    """Begins to note what is handed over, and returns where."""
    global noted, handed_over
    noted, handed_over = SimpleQueue(), 0
    return noted


def program_thread() -> threading.Thread:
    """Returns the thread that hands programs over; the main one before the first program."""
    owner = _owner
    return owner if owner is not None and owner.is_alive() else threading.main_thread()


def end() -> None:
    """Notes nothing any more; any thread may be the next to dispatch."""
    global noted, _owner, _refusal
    noted = _owner = _refusal = None


def refuse(error: Exception) -> None:
    """Lets no program over several processes be handed over any more."""
    global _refusal
    _refusal = error


def note(name: str, parts: Iterable[str]) -> None:
    """Notes that a program is about to be handed over. Does nothing while nobody guards."""
    if noted is not None or _refusal is not None:
        noted_as(Dispatch(name, fingerprint([name, *parts])))


def noted_as(dispatch: Dispatch) -> None:
    """Notes that a program of a known fingerprint is about to be handed over."""
    global _owner, handed_over
    if _refusal is not None:
        raise copy.copy(_refusal)
    if noted is None:
        return
    thread = threading.current_thread()
    if _owner is not thread:
        if _owner is not None and _owner.is_alive():
            raise ContextError(
                "Programs of several workers are run by one thread, so that all workers run them "
                f"in one order: {_owner.name!r} does, and {thread.name!r} was about to run "
                f"{dispatch.name}. Call run, reduce and gather in that thread."
            )
        _owner = thread
    handed_over += 1
    noted.put(dispatch)
