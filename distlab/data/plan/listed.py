"""Datasets of elements that are held in a list, as window and group_by_window make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.nest import leaves
from distlab.data.plan.plan import Node, Opener, Reading


@dataclass(frozen=True, eq=False)
class Listed(Node):
    """The elements of a list.

    Attributes:
      elements: The elements.
      like: The node that they come from, which has their specs.
      component: The number of the component that the elements are; None for all.
    """

    elements: Sequence[Element]
    like: Node
    component: int | None = None

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns itself: it has no inputs."""
        assert not inputs
        return self

    @property
    def spec(self) -> Any:
        """The specs of `like`, or of one component."""
        spec = self.like.spec
        return spec if self.component is None else list(leaves(spec))[self.component]

    @property
    def cardinality(self) -> int:
        """The length of the list."""
        return len(self.elements)

    @property
    def exact(self) -> bool:
        """Whether those of `like` are."""
        return self.like.exact

    def read(self, reading: Reading, open_input: Opener) -> Stream:  # noqa: ARG002
        """Opens the elements."""
        return _ListStream(self.elements)


class _ListStream(Stream):
    def __init__(self, elements: Sequence[Element]) -> None:
        super().__init__()
        self._elements = elements

    def __iter__(self) -> Reader:
        return _ListReader(self._elements)


class _ListReader(Reader):
    def __init__(self, elements: Sequence[Element]) -> None:
        super().__init__()
        self._elements = elements
        self._next = 0

    def __next__(self) -> Element:
        if self._next >= len(self._elements):
            raise StopIteration
        self._next += 1
        return self._elements[self._next - 1]

    def get_state(self) -> State:
        return {"given": self._next}

    def set_state(self, state: State) -> None:
        self._next = state["given"]
