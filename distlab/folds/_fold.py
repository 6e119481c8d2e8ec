"""The contract of a fold: events go in, columns come out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar, cast, get_type_hints

import numpy as np

from distlab.events import Event
from distlab.folds.arrays import Ints

_LARGEST: Final = (1 << 63) - 1

Columns: TypeAlias = Mapping[str, object]
"""The columns of any fold: names to lists, NumPy arrays or single values.

Each fold has a `TypedDict` of its own, such as `DeviceColumns`.
"""

T = TypeVar("T")
C_co = TypeVar("C_co", bound=Columns, covariant=True)


class Fold(Generic[C_co]):
    """One idea about a run, kept up to date from its events.

    A fold knows events and nothing that draws. Its columns depend on the events and
    their order, never on how many arrive at a time.
    """

    KINDS: ClassVar[tuple[type[Event], ...]]
    """The kinds of events that `add` accepts."""

    version: int = 0
    """Rises whenever the columns change."""

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            self._add(event)
        self.version += bool(events)

    def _add(self, event: Event) -> None:
        raise NotImplementedError

    def columns(self) -> C_co:
        """Returns the columns of all events so far. Callers must not change them."""
        raise NotImplementedError


def table(kind: Callable[..., T], rows: Iterable[object], **others: object) -> T:
    """Returns the columns of a kind: each attribute of the rows as a list or array, and others."""
    columns: dict[str, object] = {}
    kept = list(rows)
    for name, annotation in hints_of(kind).items():
        if name not in others:
            values = [getattr(row, name) for row in kept]
            columns[name] = ints(values) if annotation == Ints else values
    return cast("T", columns | others)


hints_of = functools.cache(get_type_hints)


def ints(numbers: list[int]) -> Ints:
    """Returns an array; a damaged file can hold any number."""
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        return np.array([min(number, _LARGEST) for number in numbers], np.int64)


def replica_names(devices: Sequence[str], count: int) -> list[str]:
    """Returns a name for each of `count` replicas: its device's, or its number beyond those."""
    numbered = [f"replica {replica}" for replica in range(len(devices), count)]
    return [*devices[:count], *numbered]


class Clock:
    """Converts monotonic times of events to seconds since the run began."""

    def __init__(self) -> None:
        self._zero_ns: int | None = None

    def start(self, time_ns: int) -> None:
        """Sets second 0; later calls have no effect."""
        if self._zero_ns is None:
            self._zero_ns = time_ns

    def seconds(self, time_ns: int) -> float:
        """Returns seconds since the run began, 0 before; without `start` the first call begins."""
        self.start(time_ns)
        assert self._zero_ns is not None
        return max(0, time_ns - self._zero_ns) / 1e9
