"""interleave and flat_map: a dataset for each element, several read in turns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Element, Reader, State
from distlab.data.plan.nest import call_with
from distlab.data.plan.parallel import Stopwatch
from distlab.data.plan.plan import (
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
    Unary,
    first_value,
    open_plan,
    spec_of_results,
)
from distlab.data.transforms.prefetch import PrefetchReader
from distlab.errors import StructureError

OpenPart = Callable[[int, Element], Reader]
"""Opens the part for an element, with the element's number."""


@dataclass(frozen=True, eq=False)
class Interleave(Unary):
    """Reads the datasets that `make_plan` makes of the elements, `cycle_length` at a time.

    Threads read so many of them ahead: -1 chooses, None means none.
    """

    make_plan: Callable[..., Node]
    cycle_length: int
    block_length: int
    threads: int | None

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of the plan for the first element."""
        return spec_of_results(self.input, lambda value: self._make(value).spec)

    @property
    def cardinality(self) -> int:
        """Unknown, because the function decides."""
        return UNKNOWN_CARDINALITY

    @property
    def exact(self) -> bool:
        """No: other elements may have other shapes."""
        return False

    def example(self) -> Node:
        """Returns the plan for the input's first element, or for zeros without one."""
        return self._make(first_value(self.input))

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the elements of all datasets."""

        def open_part(number: int, element: Element) -> Reader:
            return open_plan(self._make(element.value), reading.within(number))

        outer = open_input(self.input, reading)
        return InterleaveReader(
            outer, open_part, self.cycle_length, self.block_length, self.threads
        )

    def _make(self, value: Any) -> Node:
        plan: Node = call_with(self.make_plan, value)
        return plan


def plan_maker(verb: str, make_dataset: Callable[..., Any]) -> Callable[..., Node]:
    """Returns a function that makes the plan of the dataset which `make_dataset` returns."""

    def make(*parts: Any) -> Node:
        dataset = make_dataset(*parts)
        plan = getattr(dataset, "plan", None)
        if not isinstance(plan, Node):
            raise StructureError(
                f"The function of {verb} must return a Dataset, got {type(dataset).__name__}. Use "
                "map for other values."
            )
        return plan

    return make


@dataclass
class _Part:
    """An open part, with the state needed to open it again."""

    number: int
    before: State
    reader: Reader


class InterleaveReader(Reader):
    """The elements of parts in tf.data's order: a part that ends passes its turn on."""

    def __init__(
        self,
        outer: Reader,
        open_part: OpenPart,
        cycle_length: int,
        block_length: int,
        threads: int | None = None,
    ) -> None:
        super().__init__(outer)
        self._open_part = open_part
        self._threads = 0 if threads is None else threads
        self._watch = Stopwatch() if self._threads < 0 else None
        self._slots: list[_Part | None] = [None] * cycle_length
        self._block_length = block_length
        self._slot = self._taken = self._opened = 0
        self._outer_ended = False

    def __next__(self) -> Element:
        """Returns the next element."""
        if not self._opened:
            for slot in range(min(self._threads, len(self._slots))):
                self._open_next(slot)
        while not self._outer_ended or any(self._slots):
            part = self._slots[self._slot]
            if part is None:
                if not self._open_next(self._slot):
                    self._advance()
                continue
            try:
                element = self._read(part.reader)
            except StopIteration:
                part.reader.close()
                self._slots[self._slot] = None
                if self._slot < self._threads:
                    # Its successor is read ahead until the next turn.
                    self._open_next(self._slot)
                self._advance()
                continue
            self._taken += 1
            if self._taken == self._block_length:
                self._advance()
            return element._replace(indices=None)
        raise StopIteration

    def get_state(self) -> State:
        """Returns the positions of the outer reader and of the open parts."""
        return {
            "outer": self._parent.get_state(),
            "outer_ended": self._outer_ended,
            "turn": [self._slot, self._taken, self._opened],
            "slots": [
                part and [part.number, part.before, part.reader.get_state()] for part in self._slots
            ],
        }

    def set_state(self, state: State) -> None:
        """Opens the parts again, at their positions."""
        self._close_parts()
        self._slots = [
            slot and self._reopen(number, *slot) for number, slot in enumerate(state["slots"])
        ]
        self._slot, self._taken, self._opened = state["turn"]
        self._outer_ended = state["outer_ended"]
        self._parent.set_state(state["outer"])

    def close(self) -> None:
        """Closes the parts that are open."""
        self._close_parts()
        super().close()

    def _close_parts(self) -> None:
        for part in self._slots:
            if part is not None:
                part.reader.close()

    def _read(self, reader: Reader) -> Element:
        return reader.__next__() if self._watch is None else self._watch.time(reader.__next__)

    def _start(self, slot: int, open_part: Callable[[], Reader]) -> Reader:
        """Starts a part; a thread reads it ahead if its slot has one."""
        if self._watch is not None and self._watch.says_parallel:
            self._threads, self._watch = len(self._slots), None
        if slot >= self._threads:
            return open_part()
        return PrefetchReader(open_part, self._block_length + 1)

    def _open_next(self, slot: int) -> bool:
        """Opens the next part in a slot; returns whether there was one."""
        if self._outer_ended:
            return False
        before = self._parent.get_state()
        element = next(self._parent, None)
        if element is None:
            self._outer_ended = True
            return False
        reader = self._start(slot, functools.partial(self._open_part, self._opened, element))
        _begin(reader)
        self._slots[slot] = _Part(self._opened, before, reader)
        self._opened += 1
        return True

    def _reopen(self, slot: int, number: int, before: State, position: State) -> _Part:
        self._parent.set_state(before)
        element = next(self._parent)
        reader = self._start(slot, functools.partial(self._open_part, number, element))
        reader.set_state(position)
        _begin(reader)
        return _Part(number, before, reader)

    def _advance(self) -> None:
        self._slot = (self._slot + 1) % len(self._slots)
        self._taken = 0


def _begin(reader: Reader) -> None:
    """Starts to read ahead, if the reader is one that does."""
    if isinstance(reader, PrefetchReader):
        reader.begin()
