"""Gradients of tables that are combined whole, although a step uses few of their rows.

The gradient of `table[ids]` is zero but for the rows that were looked up, and as large as the
table. Combined across replicas it moves mostly zeros.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final, NamedTuple, final

from distlab.step.jaxprs import operations
from distlab.step.jaxprs.divergence import Causes
from distlab.step.jaxprs.flows import Flow

_LEAST_BYTES: Final = 1 << 20
_MOST_USED: Final = 1 / 8


class Sparse(NamedTuple):
    """A value that is zero but for a few rows."""

    rows: int  # the most that are not zero; 0 for zeros
    site: Any = None  # the operation that added to them


class Combined(NamedTuple):
    """A sparse value that replicas combine whole."""

    used: int  # the most rows that are not zero
    rows: int
    bytes: int
    site: Any  # the operation that combines it
    tables: Causes  # inputs from which rows of such a table were taken


@final
class SparseGradients(Flow[Sparse]):
    """Flow of such gradients to what the function combines."""

    def __init__(self, causes: dict[int, list[Causes]]) -> None:
        super().__init__(causes)
        self.found: list[Combined] = []
        self._tables: dict[tuple[int, ...], Causes] = {}

    def of_literal(self, literal: Any) -> Sparse | None:
        """Marks zeros."""
        return Sparse(0) if operations.number(literal) == 0 else None

    def visit(
        self, equation: Any, marks: list[Sparse | None], causes: list[Causes], site: Any
    ) -> list[Sparse | None]:
        """Follows zeros to which rows are added."""
        if operations.is_lookup(equation):
            shape = equation.invars[0].aval.shape
            self._tables[shape] = self._tables.get(shape, 0) | causes[0]
        if operations.is_collective(equation):
            for atom, mark in zip(equation.invars, marks, strict=True):
                self._note(atom.aval, mark, site)
            return []
        first = marks[0] if marks else None
        added = operations.added_rows(equation)
        if added is not None:
            return [] if first is None else [Sparse(first.rows + added, site)]
        if len(marks) == 1:
            same_rows = operations.is_by_element(equation) or operations.keeps_rows(equation)
            zeros = first is not None and first.site is None
            return [first] if same_rows or zeros else []
        return self._scaled(equation, marks)

    def _scaled(self, equation: Any, marks: list[Sparse | None]) -> list[Sparse | None]:
        """Returns the mark of a product with a number, or of a sum of two gradients."""
        shapes = [atom.aval.shape for atom in equation.invars]
        if not operations.is_by_element(equation):
            return []
        if operations.is_addition(equation):
            known = [mark for mark in marks if mark is not None]
            whole = len(known) == len(marks) == 2
            return [Sparse(sum(m.rows for m in known), known[-1].site)] if whole else []
        if operations.scaled(equation, [None, 1.0]) is None:
            return []
        large = [m for m, shape in zip(marks, shapes, strict=True) if prod(shape) > 1]
        return large if len(large) == 1 else []

    def _note(self, aval: Any, mark: Sparse | None, site: Any) -> None:
        if mark is None or mark.site is None or not aval.shape:
            return
        size = prod(aval.shape) * aval.dtype.itemsize
        if size >= _LEAST_BYTES and mark.rows <= _MOST_USED * aval.shape[0]:
            tables = self._tables.get(aval.shape, 0)
            self.found.append(Combined(mark.rows, aval.shape[0], size, site, tables))
