"""The processes of a strategy's replicas, and what they number and report for themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Final, Literal, TypeAlias, TypeVar

from distlab.events import Event

T = TypeVar("T")

WORST_FIRST: Final = ("failed", "interrupted", "stopped", "finished")
"""Ends of processes: a run of several ended as the worst of them."""


class Members:
    """The process of each of a strategy's replicas, by the strategy's joined number."""

    def __init__(self, strategy: int, processes: Sequence[int]) -> None:
        self.strategy = strategy
        self.processes = tuple(processes)

    @cached_property
    def replicas(self) -> dict[int, tuple[int, ...]]:
        """The replicas of each process."""
        found: dict[int, list[int]] = {}
        for replica, process in enumerate(self.processes):
            found.setdefault(process, []).append(replica)
        return {process: tuple(found[process]) for process in sorted(found)}

    def own(self, process: int, values: Sequence[T]) -> Sequence[T] | None:
        """Returns a process's part of a list that has its replicas alone, or all of them."""
        own = self.replicas.get(process, ())
        if len(values) == len(own):
            return values
        if len(values) == len(self.processes):
            return [values[replica] for replica in own]
        return None


Sort: TypeAlias = Literal["strategy", "program", "dataset", "array"]


class Numbers:
    """Joins numbers by what they stand for, in the order in which each process met it."""

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


MOST_WORKERS: Final = 4_096
"""Workers that are listed: a damaged file may hold any number."""


def worker_name(process: int) -> str:
    """Returns the name of a process of a run of several, such as `"worker 1"`."""
    return f"worker {process}"


class StepPart(Event, frozen=True, kw_only=True, tag="step_part"):
    """A process that is not the strategy's first one dispatched a step; never stored."""

    step: int  # Number of the step
    strategy: int  # Number of the strategy
    examples: int  # Examples of this process's replicas
