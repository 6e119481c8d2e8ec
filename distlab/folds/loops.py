"""Controlled loops and their states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict

from distlab.events import Event, Loop, Run

_ENDED = {"stopped", "done"}
_MOST_ENDED = 20


class LoopColumns(TypedDict):
    """Columns of `Loops`: one row for each loop, oldest first.

    Attributes:
      name: Names of the loops.
      state: `"running"`, `"paused"`, `"stopped"` or `"done"`.
    """

    name: list[str]
    state: list[str]


class Loops:
    """The loops that iterate over `distlab.controlled`; of ended loops the newest 20."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Loop)

    def __init__(self) -> None:
        self.version = 0
        self._loops: dict[int, Loop] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            if isinstance(event, Run):
                self._loops.clear()
            elif isinstance(event, Loop):
                self._loops[event.loop] = event
                ended = [loop for loop, last in self._loops.items() if last.state in _ENDED]
                for loop in ended[:-_MOST_ENDED]:
                    del self._loops[loop]
        self.version += bool(events)

    def columns(self) -> LoopColumns:
        """Returns the loops of all events so far."""
        newest = list(self._loops.values())
        return {
            "name": [event.name for event in newest],
            "state": [event.state for event in newest],
        }
