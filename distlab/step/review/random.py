"""Random numbers that are the same on all replicas, for examples that are not.

A mask of dropout that is drawn from one key is the same on every replica: example 3 of each of
them loses the same activations. That is seen where numbers that depend on no replica meet, element
by element, values that do, with one row for each of the replica's examples. Noise on parameters,
shared masks of gradients and random projections must be the same, and have other shapes.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final, final

from distlab.step.jaxprs import operations
from distlab.step.jaxprs.divergence import Causes
from distlab.step.jaxprs.flows import Flow

_FEWEST_NUMBERS: Final = 4


@final
class SharedRandomness(Flow[Any]):
    """Flow of such numbers to examples; a mark is the operation that drew them."""

    def __init__(
        self,
        causes: dict[int, list[Causes]],
        trusted: Causes,
        rows: set[int],
        states: set[tuple[int, ...]],
    ) -> None:
        super().__init__(causes)
        self.found: list[Any] = []
        self._trusted = trusted
        self._rows = rows
        self._states = states

    def visit(self, equation: Any, marks: list[Any], causes: list[Causes], site: Any) -> list[Any]:
        """Marks what is drawn alike, and notes where it meets what differs."""
        own = [bool(why & ~self._trusted) for why in causes]
        shape = equation.outvars[0].aval.shape if equation.outvars else ()
        if operations.is_random(equation):
            shared = not any(own) and prod(shape) >= _FEWEST_NUMBERS
            return [site if shared else None] * len(equation.outvars)
        mark = next((mark for mark in marks if mark is not None), None)
        if mark is None:
            return []
        if operations.keeps_rows(equation):
            return [mark]
        if not operations.is_by_element(equation):
            return []
        meets = any(
            differs and atom.aval.shape == shape
            for atom, differs in zip(equation.invars, own, strict=True)
        )
        if meets and self._is_of_examples(shape):
            self.found.append(mark)
            return []
        return [mark]

    def _is_of_examples(self, shape: tuple[int, ...]) -> bool:
        return shape not in self._states and any(shape[0] % rows == 0 for rows in self._rows)
