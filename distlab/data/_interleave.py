"""interleave and flat_map: a dataset for each element, several read in turns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.data._engine import Element, Reader, State, Stream
from distlab.data._nest import call_with
from distlab.data._plan import UNKNOWN_CARDINALITY, Node, Opener, Reading, Unary, open_plan
from distlab.data._spec import zeros

OpenPart = Callable[[int, Element], Stream]
"""Opens the part for an element, with the element's number."""


@dataclass(frozen=True, eq=False)
class Interleave(Unary):
    """Reads the datasets that `make_plan` makes of the elements, `cycle_length` at a time.

    Attributes:
      make_plan: A function from an element's value to a plan.
      cycle_length: The number of plans that are open at a time.
      block_length: The number of consecutive elements from one plan.
    """

    make_plan: Callable[..., Node]
    cycle_length: int
    block_length: int

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of the plan for the input's first element, or for zeros."""
        return self.example().spec

    @property
    def cardinality(self) -> int:
        """Unknown, unless the input is empty."""
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    @property
    def extent(self) -> int | None:
        """None: positions in several sources would be ambiguous."""
        return None

    def example(self) -> Node:
        """Returns the plan for the input's first element, or for zeros without one."""
        first = next(iter(open_plan(self.input, Reading(peek=True))), None)
        return self._make(zeros(self.input.spec) if first is None else first.value)

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the elements of all datasets."""

        def open_part(number: int, element: Element) -> Stream:
            return open_plan(self._make(element.value), reading.within(number))

        outer = open_input(self.input, reading)
        return InterleaveStream(outer, open_part, self.cycle_length, self.block_length)

    def _make(self, value: Any) -> Node:
        plan: Node = call_with(self.make_plan, value)
        return plan


class InterleaveStream(Stream):
    """The elements of parts, which are opened in order of the outer elements."""

    def __init__(
        self, outer: Stream, open_part: OpenPart, cycle_length: int, block_length: int
    ) -> None:
        super().__init__(outer)
        self._open_part = open_part
        self._cycle_length, self._block_length = cycle_length, block_length

    def __iter__(self) -> Reader:
        """Starts a pass."""
        return _InterleaveReader(
            iter(self._parent), self._open_part, self._cycle_length, self._block_length
        )


@dataclass
class _Part:
    """An open part, with the state needed to open it again."""

    number: int
    before: State
    reader: Reader


class _InterleaveReader(Reader):
    """Cycles through the slots as tf.data does: a part that ends passes its turn on."""

    def __init__(
        self, outer: Reader, open_part: OpenPart, cycle_length: int, block_length: int
    ) -> None:
        super().__init__(outer)
        self._open_part = open_part
        self._slots: list[_Part | None] = [None] * cycle_length
        self._block_length = block_length
        self._slot = self._taken = self._opened = 0
        self._outer_ended = False

    def __next__(self) -> Element:
        while not self._outer_ended or any(self._slots):
            part = self._slots[self._slot]
            if part is None:
                self._open_next()
                continue
            try:
                element: Element = next(part.reader)
            except StopIteration:
                part.reader.close()
                self._slots[self._slot] = None
                self._advance()
                continue
            self._taken += 1
            if self._taken == self._block_length:
                self._advance()
            return element._replace(indices=None)
        raise StopIteration

    def get_state(self) -> State:
        return {
            "outer": self._parent.get_state(),
            "outer_ended": self._outer_ended,
            "turn": [self._slot, self._taken, self._opened],
            "slots": [
                part and [part.number, part.before, part.reader.get_state()] for part in self._slots
            ],
        }

    def set_state(self, state: State) -> None:
        self._slots = [slot and self._reopen(*slot) for slot in state["slots"]]
        self._slot, self._taken, self._opened = state["turn"]
        self._outer_ended = state["outer_ended"]
        self._parent.set_state(state["outer"])

    def close(self) -> None:
        """Closes the parts that are open."""
        for part in getattr(self, "_slots", ()):
            if part is not None:
                part.reader.close()
        super().close()

    def _open_next(self) -> None:
        """Opens the next part in this slot; without one, goes to the next slot."""
        if self._outer_ended:
            self._advance()
            return
        before = self._parent.get_state()
        element: Element | None = next(self._parent, None)
        if element is None:
            self._outer_ended = True
            return
        reader = iter(self._open_part(self._opened, element))
        self._slots[self._slot] = _Part(self._opened, before, reader)
        self._opened += 1

    def _reopen(self, number: int, before: State, position: State) -> _Part:
        self._parent.set_state(before)
        reader = iter(self._open_part(number, next(self._parent)))
        reader.set_state(position)
        return _Part(number, before, reader)

    def _advance(self) -> None:
        self._slot = (self._slot + 1) % len(self._slots)
        self._taken = 0
