"""The sink of the core's events: the recorder in force.

The core calls `recorder()` and emits to it; it never imports an implementation. The
default recorder is made at the first call; with recording off it is the null recorder.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from distlab.events.kinds import Event

if TYPE_CHECKING:
    import jax


class Argument(NamedTuple):
    """An array among a call's arguments."""

    name: str  # As the user names it: `state['w']`
    path: tuple[Any, ...] = ()  # In `(args, kwargs)`
    shape: tuple[int, ...] | None = None


class ProgramNotes(NamedTuple):
    """The facts that a compiled program does not state of itself."""

    inputs: Sequence[Argument] = ()  # Of all arrays that it receives, in order
    outputs: Sequence[str] = ()  # Names of all arrays that it returns; "" for none
    lowered: Any = None  # Its `jax.stages.Lowered`
    jaxpr: Any = None  # Its trace


NO_NOTES: Final = ProgramNotes()


class Recorder(Protocol):
    """The methods of a recorder that the core calls. None of them blocks or raises."""

    enabled: bool
    """False when callers need not build events."""

    def emit(self, event: Event) -> None:
        """Records one event: one append."""

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """Watches `result`, one output of `step`, until it is ready, for some of the steps."""

    def compiled(
        self, event: Callable[..., Event], program: Any, notes: ProgramNotes = NO_NOTES
    ) -> None:
        """Reads the collectives and costs of a compiled program and emits its event."""


class NullRecorder:
    """Records nothing."""

    enabled = False

    def emit(self, event: Event) -> None:
        """Drops the event."""

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """Does nothing."""

    def compiled(
        self, event: Callable[..., Event], program: Any, notes: ProgramNotes = NO_NOTES
    ) -> None:
        """Does nothing."""


class Gatherer(Protocol):
    """Counts instead of emitting, and emits the counts now and then."""

    def tell(self) -> None:
        """Emits what was counted since the last time."""


gatherers: Final[weakref.WeakSet[Gatherer]] = weakref.WeakSet()
"""All that count."""


def gather() -> None:
    """Has all counts emitted, as a recording begins or ends."""
    for gatherer in list(gatherers):
        gatherer.tell()


os.register_at_fork(after_in_child=gatherers.clear)  # what counts has no threads there

NULL = NullRecorder()
_make_default: Callable[[], Recorder] | None = None
in_force: Recorder | None = None
"""The recorder in force; None until `recorder` is first called."""
_tell: list[Callable[[int], None]] = []


def recorder() -> Recorder:
    """Returns the recorder in force; makes the default one at the first call."""
    global in_force
    if in_force is None:
        in_force = NULL if _make_default is None else _make_default()
    return in_force


def install(recorder: Recorder) -> None:
    """Puts a recorder in force for the whole process."""
    global in_force
    in_force = recorder


def before_the_end(tell: Callable[[int], None]) -> None:
    """Adds a function that emits what the core has noted, to be called before a recording ends."""
    _tell.append(tell)


def tell_all(first_step: int) -> None:
    """Emits what the core has noted. A recording calls it before it ends."""
    for tell in _tell:
        tell(first_step)


def set_default(make: Callable[[], Recorder]) -> None:
    """Sets the function that makes the default recorder at the first call of `recorder`."""
    global _make_default
    _make_default = make
