"""The values that a parameter server holds, and the operations that change them.

A server has no JAX: it starts faster, and needs less memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, final

import numpy as np

from distlab.integrations.dask.packing import Described, from_text, packed, sent, unpacked


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
    """The values of one strategy on one parameter server, each with the number of its changes."""

    def __init__(self) -> None:
        self._values: dict[int, np.ndarray] = {}
        self._versions: dict[int, int] = {}
        self._numbers = itertools.count()

    def answer(self, verb: Literal["make", "read", "update"], *about: Any) -> Any:
        """Returns what one of the following methods returns."""
        method: Callable[..., Any] = getattr(self, verb)
        return method(*about)

    def make(self, described: Described, buffer: Any) -> int:
        """Keeps a copy of a packed value, and returns its number."""
        number = next(self._numbers)
        self._values[number] = np.array(unpacked(described, buffer)[0])
        self._versions[number] = 0
        return number

    def read(self, numbers: str) -> tuple[list[int], Described, Any]:
        """Returns the versions of values, and a packed copy of the values."""
        wanted = from_text(numbers)
        described, buffer = packed([self._values[number] for number in wanted])
        return [self._versions[number] for number in wanted], described, sent(buffer)

    def update(self, changes: str, described: Described, buffer: Any) -> list[int]:
        """Changes values; nobody sees some of the changes of one call without the others."""
        left = iter(unpacked(described, buffer))
        before = []
        for number, verb, count in from_text(changes):
            APPLY[verb](self._values[number], *(next(left) for _ in range(count)))
            before.append(self._versions[number])
            self._versions[number] += 1
        return before

    def forget(self, numbers: Sequence[int]) -> None:
        """Frees values."""
        for number in numbers:
            self._values.pop(number, None)
            self._versions.pop(number, None)
