"""rebatch: batches of another size, or of a cycle of sizes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.nest import leaves
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Order, Reading
from distlab.data.plan.rows import join, require_rows, row_count, rows
from distlab.data.plan.spec import batch_spec, row_spec


@dataclass(frozen=True, eq=False)
class Rebatch(Order):
    """Divides the rows of all elements, in order, into batches of `sizes`, in turn."""

    sizes: tuple[int, ...]
    drop_remainder: bool

    def __post_init__(self) -> None:
        """Checks that elements have rows, where that is known before they are read."""
        require_rows("rebatch", self.input)

    @functools.cached_property
    def spec(self) -> Any:
        """The input's, with a first dimension that is known if all batches share it."""
        specs, size = self.input.spec, self.sizes[0]
        whole = len(set(self.sizes)) == 1 and (self.drop_remainder or self._divides(size, specs))
        return batch_spec(row_spec(specs), size if whole else None)

    @property
    def cardinality(self) -> int:
        """Unknown, because the input's batches may have any sizes."""
        return UNKNOWN_CARDINALITY

    def _divides(self, size: int, specs: Any) -> bool:
        """Returns whether each of the input's batches has a multiple of `size` rows."""
        counts = {spec.shape[0] for spec in leaves(specs)}
        return self.input.exact and all(count and size and count % size == 0 for count in counts)

    def rank(self, rank: int) -> int | None:
        """The same; rows of the source's own elements have no positions."""
        return rank or None

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the new batches."""
        stream = open_input(self.input, reading)
        return _RebatchStream(stream, self.sizes, drop_remainder=self.drop_remainder)


class _RebatchStream(Stream):
    def __init__(self, parent: Stream, sizes: tuple[int, ...], *, drop_remainder: bool) -> None:
        super().__init__(parent)
        self._sizes, self._drop = sizes, drop_remainder

    def __iter__(self) -> Reader:
        return _RebatchReader(iter(self._parent), self._sizes, drop_remainder=self._drop)


class _RebatchReader(Reader):
    """Keeps the last element, whose remaining rows begin the next batch."""

    def __init__(self, parent: Reader, sizes: tuple[int, ...], *, drop_remainder: bool) -> None:
        super().__init__(parent)
        self._sizes, self._drop = sizes, drop_remainder
        self._turn = 0
        self._before = parent.get_state()
        self._element: Element | None = None
        self._next = self._count = 0

    def __next__(self) -> Element:
        size = self._sizes[self._turn % len(self._sizes)]
        if size == 0:
            batch = self._empty()
        else:
            parts = self._take(size)
            taken = sum(row_count(part) for part in parts)
            if not taken or (self._drop and taken < size):
                raise StopIteration
            batch = join(parts)
        self._turn += 1
        return batch

    def get_state(self) -> State:
        return {"turn": self._turn, "before": self._before, "next": self._next}

    def set_state(self, state: State) -> None:
        self._turn, self._before = state["turn"], state["before"]
        self._parent.set_state(self._before)
        self._count = self._next = 0
        if state["next"] and self._load():
            self._next = state["next"]

    def _take(self, size: int) -> list[Element]:
        """Returns parts of elements with `size` rows together, fewer only at the end."""
        parts: list[Element] = []
        while size > 0:
            if self._next >= self._count and not self._load():
                break
            assert self._element is not None
            stop = min(self._next + size, self._count)
            parts.append(rows(self._element, self._next, stop))
            size -= stop - self._next
            self._next = stop
        return parts

    def _empty(self) -> Element:
        if self._element is None and not self._load():
            raise StopIteration
        assert self._element is not None
        return rows(self._element, 0, 0)

    def _load(self) -> bool:
        """Reads the next element; at the end it keeps the last one."""
        before = self._parent.get_state()
        element: Element | None = next(self._parent, None)
        if element is None:
            return False
        self._before, self._element = before, element
        self._count, self._next = row_count(element), 0
        return True
