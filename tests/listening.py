"""A recorder that keeps events in a list, for tests of what the core emits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax

from distlab.events import Event, sink
from distlab.programs.contents import read_program, read_programs

EventT = TypeVar("EventT", bound=Event)


class Listener:
    """Keeps every event; reads compiled programs as the real recorder does."""

    enabled = True

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.watched: list[int] = []

    def emit(self, event: Event) -> None:
        """Keeps an event."""
        self.events.append(event)

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """Notes which step could be followed."""
        del strategy, time_ns, result
        self.watched.append(step)

    def compiled(
        self,
        event: Callable[..., Event],
        program: Any,
        notes: sink.ProgramNotes = sink.NO_NOTES,
    ) -> None:
        """Keeps the compile event with its contents."""
        several = isinstance(program, list)
        contents = read_programs(program) if several else read_program(program, notes)
        self.emit(event(**contents._asdict()))

    def of(self, kind: type[EventT]) -> list[EventT]:
        """Returns the events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


@contextlib.contextmanager
def listening() -> Iterator[Listener]:
    """Puts a listener in force for a block of code."""
    before, listener = sink.recorder(), Listener()
    sink.install(listener)
    try:
        yield listener
    finally:
        sink.install(before)
