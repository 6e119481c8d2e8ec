"""filter: the elements for which a predicate holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data._engine import Element, Stream, filtered
from distlab.data._nest import call_with
from distlab.data._plan import UNKNOWN_CARDINALITY, Opener, Reading, Unary
from distlab.errors import ValueShapeError


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """Keeps the elements whose value `predicate` accepts."""

    predicate: Callable[..., Any]

    @property
    def cardinality(self) -> int:
        """Unknown, because the predicate decides."""
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the accepted elements."""
        return filtered(open_input(self.input, reading), self._accepts)

    def _accepts(self, element: Element) -> bool:
        answer = np.asarray(call_with(self.predicate, element.value))
        if answer.size != 1:
            raise ValueShapeError(
                "The predicate of filter must return one truth value, got an array of shape "
                f"{answer.shape}. Use np.all or np.any, or filter before batch."
            )
        return bool(answer.item())
