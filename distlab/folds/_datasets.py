"""The datasets whose batches are divided, and which functions receive their batches."""

from __future__ import annotations

from typing import Final

from distlab.events import Compile, Sharding, Step

_MOST: Final = 50
_MOST_NUMBERS: Final = 1_000
_MOST_FUNCTIONS: Final = 2


class DatasetNames:
    """Names datasets, and gives them places in the order of their first batches.

    Distributed datasets of one line of the program whose batches one function receives, such
    as a new one in each epoch, are one. Of more than 50, the last ones share a place.

    Attributes:
      counts: How many batches of each there were.
    """

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._origins: list[tuple[str, str, int]] = []
        self._functions: list[dict[str, None]] = []
        self._place_of: dict[int, int] = {}
        self._newest: dict[int, tuple[int, bool]] = {}
        self._programs: dict[int, str] = {}
        self._shared = False

    def add(self, event: Sharding) -> int:
        """Counts a batch; returns the place of its dataset."""
        number = event.dataset
        place = self._place_of.get(number)
        first = place is None
        if place is None:
            origin = _origin(event)
            alike = [one for one, known in enumerate(self._origins) if known == origin]
            place = self._place_of[number] = alike[0] if alike else self._new_place(origin)
            if len(self._place_of) > _MOST_NUMBERS:
                del self._place_of[next(iter(self._place_of))]
        self.counts[place] += 1
        self._newest[event.strategy] = number, first
        return place

    def note_program(self, event: Compile) -> None:
        """Notes the name of a function, which steps refer to by the number of its program."""
        self._programs[event.program] = event.function

    def note_step(self, event: Step) -> tuple[int, int] | None:
        """Notes which function received the last batch."""
        number, first = self._newest.pop(event.strategy, (-1, False))
        function = self._programs.get(event.program)
        place = self._place_of.get(number)
        if place is None or not function or not event.examples:
            return None
        known = self._functions[place]
        if function in known:
            return None
        if known and first:
            place = self._move(number, function)
        elif len(known) >= _MOST_FUNCTIONS:
            return None
        else:
            known[function] = None
        return number, place

    @property
    def main(self) -> int:
        """The place of the dataset with the most batches, 0 before the first."""
        return self.counts.index(max(self.counts)) if self.counts else 0

    def texts(self) -> list[str]:
        """Returns a name for each, such as `"for train_step, train.py:31"`."""
        texts = [
            _text(*origin, functions)
            for origin, functions in zip(self._origins, self._functions, strict=True)
        ]
        if self._shared:
            texts[-1] = "other datasets"
        return texts

    def _move(self, number: int, function: str) -> int:
        """Gives a dataset the place of those whose batches the function receives."""
        before = self._place_of[number]
        origin = self._origins[before]
        fitting = [
            place
            for place, one in enumerate(self._origins)
            if one == origin and function in self._functions[place]
        ]
        place = fitting[0] if fitting else self._new_place(origin)
        self._functions[place][function] = None
        self._place_of[number] = place
        self.counts[before] -= 1
        self.counts[place] += 1
        return place

    def _new_place(self, origin: tuple[str, str, int]) -> int:
        if len(self.counts) == _MOST:
            self._shared = True
            return _MOST - 1
        self.counts.append(0)
        self._origins.append(origin)
        self._functions.append({})
        return len(self.counts) - 1


def _origin(event: Sharding) -> tuple[str, str, int]:
    """Returns what datasets have in common that are one: name and line, or else their number."""
    return event.name, event.source, -1 if event.name or event.source else event.dataset


def _text(name: str, source: str, number: int, functions: dict[str, None]) -> str:
    used = f"for {' and '.join(functions)}" if functions else ""
    return ", ".join(filter(None, [name or used, source])) or f"dataset {number}"
