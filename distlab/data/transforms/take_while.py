"""take_while: the elements before the first one that a predicate refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.nest import truth
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Reading, Unary


@dataclass(frozen=True, eq=False)
class TakeWhile(Unary):
    """The elements before the first one that `predicate` refuses."""

    predicate: Callable[..., Any]

    @property
    def cardinality(self) -> int:
        """Unknown, because the predicate decides."""
        return UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the accepted elements."""
        return _TakeWhileStream(open_input(self.input, reading), self.predicate)


class _TakeWhileStream(Stream):
    def __init__(self, parent: Stream, predicate: Callable[..., Any]) -> None:
        super().__init__(parent)
        self._predicate = predicate

    def __iter__(self) -> Reader:
        return _TakeWhileReader(iter(self._parent), self._predicate)


class _TakeWhileReader(Reader):
    def __init__(self, parent: Reader, predicate: Callable[..., Any]) -> None:
        super().__init__(parent)
        self._predicate = predicate
        self._ended = False

    def __next__(self) -> Element:
        if self._ended:
            raise StopIteration
        element: Element = next(self._parent)
        if not truth("take_while", self._predicate, element.value):
            self._ended = True
            raise StopIteration
        return element

    def get_state(self) -> State:
        return {"ended": self._ended, "parent": self._parent.get_state()}

    def set_state(self, state: State) -> None:
        self._ended = state["ended"]
        self._parent.set_state(state["parent"])
