"""concatenate: one dataset after another."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
    walk,
)
from distlab.data.plan.spec import common_spec, require_one_dtype


@dataclass(frozen=True, eq=False)
class Concatenate(Node):
    """All elements of `first`, then all of `second`.

    Positions in the second's source continue those of the first's, unless both
    read the same source.
    """

    first: Node
    second: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The first and the second."""
        return (self.first, self.second)

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns this operation over other inputs."""
        return Concatenate(*inputs)

    @functools.cached_property
    def spec(self) -> Any:
        """The most specific specs that both satisfy."""
        return common_spec(self.first.spec, self.second.spec)

    @property
    def cardinality(self) -> int:
        """The sum."""
        sizes = (self.first.cardinality, self.second.cardinality)
        if INFINITE_CARDINALITY in sizes:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in sizes else sum(sizes)

    @property
    def extent(self) -> int | None:
        """The sum of the sources' extents."""
        offset, second = self._offset, self.second.extent
        return None if offset is None or second is None else offset + second

    @functools.cached_property
    def _offset(self) -> int | None:
        """The offset of the second's positions; None if positions would be ambiguous."""
        roots = {node for node in walk(self) if not node.inputs}
        return 0 if len(roots) == 1 else self.first.extent

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens one after the other."""
        first = open_input(self.first, reading)
        return _ConcatenateStream(first, open_input(self.second, reading), self._offset)


class _ConcatenateStream(Stream):
    def __init__(self, first: Stream, second: Stream, offset: int | None) -> None:
        super().__init__((first, second))
        self._offset = offset

    def __iter__(self) -> Reader:
        return _ConcatenateReader([iter(parent) for parent in self._parents], self._offset)


class _ConcatenateReader(Reader):
    def __init__(self, parents: list[Reader], offset: int | None) -> None:
        super().__init__(parents)
        self._offset = offset
        self._in_second = False
        self._last_of_first: Element | None = None

    def __next__(self) -> Element:
        first, second = self._parents
        if not self._in_second:
            try:
                element: Element = next(first)
            except StopIteration:
                self._in_second = True
            else:
                self._last_of_first = element
                return element if self._offset is not None else element._replace(indices=None)
        element = next(second)
        if self._last_of_first is not None:
            # Specs before that may have been those of the first elements, or not known.
            require_one_dtype("concatenate", self._last_of_first.value, element.value)
            self._last_of_first = None
        if element.indices is None or self._offset is None:
            return element._replace(indices=None)
        return element._replace(indices=element.indices + self._offset)

    def get_state(self) -> State:
        return {
            "in_second": self._in_second,
            "parents": [parent.get_state() for parent in self._parents],
        }

    def set_state(self, state: State) -> None:
        self._in_second = state["in_second"]
        self._last_of_first = None
        for parent, position in zip(self._parents, state["parents"], strict=True):
            parent.set_state(position)
