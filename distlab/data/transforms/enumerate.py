"""enumerate: elements with their number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Stream, numbered
from distlab.data.plan.plan import Opener, Reading, Unary
from distlab.data.plan.spec import TensorSpec


@dataclass(frozen=True, eq=False)
class Enumerate(Unary):
    """Pairs `(number, element)`, with int64 numbers from `start` on."""

    start: int

    @property
    def spec(self) -> Any:
        """A pair of an int64 scalar's spec and the input's."""
        return (TensorSpec((), np.dtype(np.int64)), self.input.spec)

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the pairs."""
        return numbered(open_input(self.input, reading), self._pair)

    def _pair(self, number: int, element: Element) -> Element:
        return Element((np.int64(self.start + number), element.value), element.indices)
