"""Which process has which replicas of a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

T = TypeVar("T")


class Members:
    """The processes of a strategy's replicas.

    Attributes:
      strategy: The strategy's joined number.
      processes: The process of each replica, in replica order.
    """

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
