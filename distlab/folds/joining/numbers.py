"""One number for what several processes have numbered for themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Literal, TypeAlias

Sort: TypeAlias = Literal["strategy", "program", "dataset", "array"]


class Numbers:
    """Joins numbers by what they stand for, in the order in which each process met it.

    Two processes of one program meet the same things in the same order: the second
    dataset of a line is the second one in every process.
    """

    def __init__(self) -> None:
        self._joined: dict[tuple[Sort, int, int], int] = {}
        self._met: Counter[tuple[Sort, int, Hashable]] = Counter()
        self._known: dict[tuple[Sort, Hashable, int], int] = {}
        self._next: Counter[Sort] = Counter()

    def meet(self, sort: Sort, process: int, number: int, what: Hashable) -> int:
        """Returns the joined number of a thing, which the process may have met before."""
        joined = self._joined.get((sort, process, number))
        if joined is None:
            place = self._met[sort, process, what]
            self._met[sort, process, what] += 1
            joined = self._known.get((sort, what, place))
            if joined is None:
                joined = self._known[sort, what, place] = self._next[sort]
                self._next[sort] += 1
            self._joined[sort, process, number] = joined
        return joined

    def find(self, sort: Sort, process: int, number: int) -> int | None:
        """Returns the joined number of a thing, None when the process has not met it."""
        return self._joined.get((sort, process, number))
