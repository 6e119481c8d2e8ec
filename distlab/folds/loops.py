"""Loops that can be controlled, and how they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from distlab.events import Event, Loop, Run
from distlab.folds._fold import Columns

_OVER = {"stopped", "done"}
_MOST_OVER = 20


class Loops:
    """The loops that went through `distlab.controlled`, the newest last.

    Columns (one row for each loop; of those that are over, the newest 20):
      loop: list of their numbers in the process.
      name: list of what they call themselves.
      state: list of `"running"`, `"paused"`, `"stopped"` or `"done"`.
      position: list of elements handed to them when they said so last.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Loop)

    def __init__(self) -> None:
        self.version = 0
        self._loops: dict[int, Loop] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            if isinstance(event, Run):
                self._loops.clear()
            elif isinstance(event, Loop):
                self._loops[event.loop] = event
                over = [loop for loop, last in self._loops.items() if last.state in _OVER]
                for loop in over[:-_MOST_OVER]:
                    del self._loops[loop]
        self.version += bool(events)

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        newest = list(self._loops.values())
        return {
            "loop": [event.loop for event in newest],
            "name": [event.name for event in newest],
            "state": [event.state for event in newest],
            "position": [event.position for event in newest],
        }
