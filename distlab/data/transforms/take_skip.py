"""take and skip: the first elements of a dataset, or the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distlab.data.plan.engine import Element, Empty, Reader, State, Stream, limited
from distlab.data.plan.plan import INFINITE_CARDINALITY, Opener, PlainOrder, Reading
from distlab.data.plan.positions import Advanced, Limited, Positions


@dataclass(frozen=True, eq=False)
class Take(PlainOrder):
    """The first `count` elements."""

    count: int

    @property
    def cardinality(self) -> int:
        """At most `count`; unknown if the input's is."""
        size = self.input.cardinality
        if size == INFINITE_CARDINALITY:
            return self.count
        return min(size, self.count)

    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts the first positions."""
        return Limited(upstream(reading), self.count)

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the first elements."""
        if self.count == 0:
            return Empty()
        return limited(open_input(self.input, reading), self.count)


@dataclass(frozen=True, eq=False)
class Skip(PlainOrder):
    """All elements but the first `count`."""

    count: int

    @property
    def cardinality(self) -> int:
        """The number of elements that are left."""
        size = self.input.cardinality
        return size if size < 0 else max(0, size - self.count)

    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts the positions after the first ones."""
        return Advanced(upstream(reading), self.count)

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the elements after the first ones."""
        return _SkipStream(open_input(self.input, reading), self.count)


class _SkipStream(Stream):
    def __init__(self, parent: Stream, count: int) -> None:
        super().__init__(parent)
        self._count = count

    def __iter__(self) -> Reader:
        return _SkipReader(iter(self._parent), self._count)


class _SkipReader(Reader):
    def __init__(self, parent: Reader, count: int) -> None:
        super().__init__(parent)
        self._left = count

    def __next__(self) -> Element:
        while self._left:
            next(self._parent)
            self._left -= 1
        element: Element = next(self._parent)
        return element

    def get_state(self) -> State:
        return {"left": self._left, "parent": self._parent.get_state()}

    def set_state(self, state: State) -> None:
        self._left = state["left"]
        self._parent.set_state(state["parent"])
