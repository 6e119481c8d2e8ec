"""filter: the elements for which a predicate holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Element, Stream, filtered
from distlab.data.plan.nest import truth
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Reading, Unary


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """Keeps the elements whose value `predicate` accepts."""

    predicate: Callable[..., Any]

    @property
    def cardinality(self) -> int:
        """Unknown, because the predicate decides."""
        return UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the accepted elements."""
        return filtered(open_input(self.input, reading), self._accepts)

    def _accepts(self, element: Element) -> bool:
        return truth("filter", self.predicate, element.value)
