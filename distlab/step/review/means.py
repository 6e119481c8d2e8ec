"""Gradients of each replica's mean loss that are added up, or averaged though means weigh unequal.

The gradient of a mean over n examples begins with 1 / n, spread over them. An all-reduce that adds
such gradients up gives the mean gradient times the number of replicas. One that averages them is
right where all replicas have equally many examples.
"""

from __future__ import annotations

from math import isclose, prod
from typing import Any, Final, Literal, NamedTuple, final

from distlab.step.jaxprs import operations
from distlab.step.jaxprs.divergence import Causes
from distlab.step.jaxprs.flows import Flow

_CLOSE: Final = 1e-4


class Mark(NamedTuple):
    """The known facts of a value."""

    kind: Literal["number", "mean", "sum", "average"]  # "mean" is from a gradient of one
    value: float  # the number, or of how many the mean is


@final
class Means(Flow[Mark]):
    """Flow of the gradients of means to the outputs."""

    def __init__(self, causes: dict[int, list[Causes]], replicas: int, rows: set[int]) -> None:
        super().__init__(causes)
        self.adaptive = False
        self.combined: Any = None
        self._replicas = replicas
        self._rows = rows

    def of_literal(self, literal: Any) -> Mark | None:
        """Marks numbers."""
        value = operations.number(literal)
        return None if value is None else Mark("number", value)

    def visit(
        self, equation: Any, marks: list[Mark | None], causes: list[Causes], site: Any
    ) -> list[Mark | None]:
        """Follows numbers, means, and what becomes of them."""
        del causes
        outputs = [out.aval for out in equation.outvars]
        if operations.is_collective(equation):
            return self._combined(equation, marks, site)
        numbers = [m.value if m is not None and m.kind == "number" else None for m in marks]
        known = {m.kind: m for m in marks if m is not None and m.kind != "number"}
        if not known:
            return self._of_numbers(equation, numbers, outputs)
        if "sum" in known:
            factor = operations.scaled(equation, numbers)
            if factor is not None and isclose(abs(factor), 1 / self._replicas, rel_tol=_CLOSE):
                return [Mark("average", known["sum"].value)]
            self.adaptive = self.adaptive or operations.is_root(equation)
        elif "mean" in known and self._is_weight(operations.scaled(equation, numbers)):
            return []
        strongest = known.get("sum") or known.get("average") or known["mean"]
        return [strongest] * len(outputs)

    def _is_weight(self, factor: float | None) -> bool:
        """Returns whether a factor makes a replica's mean its part of one over all examples.

        That are the number of its examples, their share of the global batch, and one over the
        number of replicas.
        """
        if factor is None or factor <= 0:
            return False
        if isclose(factor, 1 / self._replicas, rel_tol=_CLOSE):
            return True
        if factor >= 1:
            return any(isclose(factor, rows, rel_tol=_CLOSE) for rows in self._rows if rows > 1)
        return any(
            rows < round(rows / factor) <= self._replicas * (rows + 1)
            and isclose(rows / factor, round(rows / factor), rel_tol=_CLOSE)
            for rows in self._rows
        )

    def _combined(self, equation: Any, marks: list[Mark | None], site: Any) -> list[Mark | None]:
        if not (operations.is_marked(equation) or operations.is_all_reduce(equation)):
            return []
        totals: list[Mark | None] = []
        for out, mark in zip(equation.outvars, marks, strict=False):
            gradient = mark is not None and mark.kind != "number" and prod(out.aval.shape) > 1
            totals.append(Mark("sum", mark.value) if mark is not None and gradient else None)
        if any(totals) and self.combined is None:
            self.combined = site
        return totals

    def _of_numbers(
        self, equation: Any, numbers: list[float | None], outputs: list[Any]
    ) -> list[Mark | None]:
        if len(outputs) != 1 or all(number is None for number in numbers):
            return []
        count = prod(outputs[0].shape)
        first = next(number for number in numbers if number is not None)
        if len(numbers) == 1 and count > 1:
            mean = isclose(abs(first) * count, 1.0, rel_tol=_CLOSE) and self._is_of_batch(
                count, equation
            )
            return [Mark("mean", count)] if mean else []
        if count > 1 or any(number is None for number in numbers):
            return []
        factor = operations.scaled(equation, [None, *numbers[1:]]) if len(numbers) < 3 else None
        return [] if factor is None else [Mark("number", first * factor)]

    def _is_of_batch(self, count: int, equation: Any) -> bool:
        """Returns whether so many numbers are those of a replica's batch.

        Where an example has a number for each replica, their mean and a sum that is divided by the
        global batch size are the same: there the user has called `mean`.
        """
        if any(count == rows * self._replicas for rows in self._rows):
            return operations.is_of_mean(equation)
        return any(count % rows == 0 for rows in self._rows)
