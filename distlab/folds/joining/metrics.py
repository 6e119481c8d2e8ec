"""Logged numbers of several processes: of equal names, those of one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from distlab.events import Metric

_PATIENCE: Final = 16
"""Values of a name that wait for the first process to log this name."""


class Metrics:
    """Keeps each name's values of one process: the first one, if it logs this name."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}
        self._waiting: dict[tuple[str, int], list[Metric]] = {}

    def add(self, process: int, event: Metric, first: int) -> Iterator[Metric]:
        """Adds what a process logged, and yields the values that count."""
        kept: dict[str, float] = {}
        for name, value in event.values.items():
            if process == first and self._owners.get(name) != first:
                self._owners[name] = first
            owner = self._owners.get(name)
            if owner == process:
                kept[name] = value
            elif owner is None:
                waiting = self._waiting.setdefault((name, process), [])
                waiting.append(msgspec.structs.replace(event, values={name: value}))
                if len(waiting) > _PATIENCE:
                    yield from self._own(name, process)
        if kept:
            yield msgspec.structs.replace(event, values=kept)

    def settle(self, process: int) -> Iterator[Metric]:
        """Yields the values of a process that ended and that still wait."""
        for name, of in list(self._waiting):
            if of == process and name not in self._owners:
                yield from self._own(name, process)

    def _own(self, name: str, process: int) -> Iterator[Metric]:
        self._owners[name] = process
        yield from self._waiting.pop((name, process))
