"""unbatch: the rows of each element as elements."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.nest import leaves
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Order, Reading
from distlab.data.plan.rows import require_rows, row, row_count
from distlab.data.plan.spec import row_spec


@dataclass(frozen=True, eq=False)
class Unbatch(Order):
    """The rows of each element."""

    def __post_init__(self) -> None:
        """Checks that elements have rows, where that is known before they are read."""
        require_rows("unbatch", self.input)

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of a row."""
        return row_spec(self.input.spec)

    @property
    def cardinality(self) -> int:
        """The number of rows, known if the first dimension is."""
        size = self.input.cardinality
        if size < 0:
            return size
        counts = {spec.shape[0] if spec.rank else None for spec in leaves(self.input.spec)}
        count = counts.pop()
        return UNKNOWN_CARDINALITY if counts or count is None else size * count

    def rank(self, rank: int) -> int | None:
        """One less; rows of the source's own elements have no positions."""
        return rank - 1 if rank else None

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the rows."""
        return _UnbatchStream(open_input(self.input, reading))


class _UnbatchStream(Stream):
    def __iter__(self) -> Reader:
        return _UnbatchReader(iter(self._parent))


class _UnbatchReader(Reader):
    def __init__(self, parent: Reader) -> None:
        super().__init__(parent)
        self._before = parent.get_state()
        self._element: Element | None = None
        self._next = self._count = 0

    def __next__(self) -> Element:
        while self._next >= self._count:
            self._load()
            self._next = 0
        assert self._element is not None
        self._next += 1
        return row(self._element, self._next - 1)

    def get_state(self) -> State:
        return {"before": self._before, "next": self._next}

    def set_state(self, state: State) -> None:
        self._before, self._next = state["before"], state["next"]
        self._parent.set_state(self._before)
        self._count = 0
        if self._next:
            self._load()

    def _load(self) -> None:
        before = self._parent.get_state()
        element: Element = next(self._parent)
        self._before, self._element, self._count = before, element, row_count(element)
