"""zip: elements of several datasets side by side."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Stream, zipped
from distlab.data.plan.nest import map_nest
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
)


@dataclass(frozen=True, eq=False)
class Zip(Node):
    """One element of each part at a time, until the first part ends.

    Attributes:
      parts: The nodes that are read.
      structure: The nest of an element, with the number of a part at each leaf.
    """

    parts: tuple[Node, ...]
    structure: Any

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The parts."""
        return self.parts

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns this operation over other parts."""
        return Zip(inputs, self.structure)

    @functools.cached_property
    def spec(self) -> Any:
        """The structure, with each part's specs at its leaf."""
        return map_nest(lambda part: self.parts[part].spec, self.structure)

    @property
    def cardinality(self) -> int:
        """The shortest part's."""
        sizes = [part.cardinality for part in self.parts]
        if UNKNOWN_CARDINALITY in sizes:
            return UNKNOWN_CARDINALITY
        return min((size for size in sizes if size >= 0), default=INFINITE_CARDINALITY)

    @property
    def extent(self) -> int | None:
        """The parts' extent if they share one, else None."""
        extents = {part.extent for part in self.parts}
        return extents.pop() if len(extents) == 1 else None

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the parts side by side."""
        streams = [open_input(part, reading) for part in self.parts]
        return zipped(streams, self._combine)

    def _combine(self, elements: tuple[Element, ...]) -> Element:
        value = map_nest(lambda part: elements[part].value, self.structure)
        return Element(value, _common_indices(elements))


def _common_indices(elements: tuple[Element, ...]) -> Any:
    """Returns the indices when all parts agree on them."""
    first = elements[0].indices
    if first is None:
        return None
    for element in elements[1:]:
        if element.indices is None or not np.array_equal(first, element.indices):
            return None
    return first
