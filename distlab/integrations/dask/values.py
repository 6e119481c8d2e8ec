"""The values that a parameter server holds, and the operations that change them.

A server has no JAX: it starts faster, and needs less memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np


def _scattered(
    combine: Callable[[np.ndarray, np.ndarray, np.ndarray], None],
) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    def apply(value: np.ndarray, indices: np.ndarray, rows: np.ndarray) -> None:
        # As in a compiled step of JAX, rows outside of the variable are left out.
        inside = (indices >= -len(value)) & (indices < len(value))
        combine(value, indices[inside], rows[inside])

    return apply


def _divide(value: np.ndarray, indices: np.ndarray, rows: np.ndarray) -> None:
    divisors = np.ones_like(value)
    np.multiply.at(divisors, indices, rows)
    if np.issubdtype(value.dtype, np.integer):  # toward zero, as in TensorFlow
        value[...] = np.abs(value) // np.abs(divisors) * np.sign(value) * np.sign(divisors)
    else:
        value /= divisors


def _replace(value: np.ndarray, indices: np.ndarray, rows: np.ndarray) -> None:
    value[indices] = rows


def _assign(value: np.ndarray, new: np.ndarray) -> None:
    value[...] = new


def _add(value: np.ndarray, delta: np.ndarray) -> None:
    np.add(value, delta, out=value)


def _subtract(value: np.ndarray, delta: np.ndarray) -> None:
    np.subtract(value, delta, out=value)


APPLY: Final[dict[str, Callable[..., None]]] = {
    "assign": _assign,
    "assign_add": _add,
    "assign_sub": _subtract,
    "scatter_add": _scattered(np.add.at),
    "scatter_sub": _scattered(np.subtract.at),
    "scatter_mul": _scattered(np.multiply.at),
    "scatter_div": _scattered(_divide),
    "scatter_min": _scattered(np.minimum.at),
    "scatter_max": _scattered(np.maximum.at),
    "scatter_update": _scattered(_replace),
}
"""Changes a value in place; the operations of `variables.operations`."""


@final
class Values:
    """The values of one strategy on one parameter server."""

    def __init__(self) -> None:
        self._values: dict[int, np.ndarray] = {}
        self._numbers = itertools.count()

    def make(self, value: np.ndarray) -> int:
        """Keeps a copy of a value, and returns its number."""
        number = next(self._numbers)
        self._values[number] = np.array(value)
        return number

    def read(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """Returns values, which must be copied before the next change."""
        return [self._values[number] for number in numbers]

    def update(
        self, changes: Sequence[tuple[int, str, int]], operands: Sequence[np.ndarray]
    ) -> None:
        """Changes values.

        Args:
          changes: For each operation the value's number, the verb and the number of operands.
          operands: The operands of all operations, in order.
        """
        left = iter(operands)
        for number, verb, count in changes:
            APPLY[verb](self._values[number], *(next(left) for _ in range(count)))

    def forget(self, numbers: Sequence[int]) -> None:
        """Frees values."""
        for number in numbers:
            self._values.pop(number, None)

    def described(self) -> dict[int, Any]:
        """Returns the bytes of each value."""
        return {number: value.nbytes for number, value in self._values.items()}
