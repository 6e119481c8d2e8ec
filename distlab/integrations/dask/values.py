"""Values of parameter servers: packed in one buffer for each message, changed in place.

A server has no JAX, so it starts faster and needs less memory.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from distributed.protocol.serialize import ToPickle

Packed: TypeAlias = tuple[str, Any]
"""The kinds of arrays as text, and their bytes in one buffer.

Dask takes long to measure and encode lists; text is kept, as the same variables are read and
changed again and again.
"""

_KEPT: Final = 256
_MOST_INSIDE: Final = 1 << 14


def packed(arrays: Sequence[np.ndarray]) -> Packed:
    """Returns copies of arrays in one buffer, which is ten times as fast as one buffer each."""
    kinds = kinds_text(tuple([(array.shape, array.dtype) for array in arrays]))
    buffers: Any = arrays
    try:
        return kinds, b"".join(buffers)
    except TypeError:  # one is not contiguous, or of a type of ml_dtypes
        buffers = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
        return kinds, b"".join(buffers)


def unpacked(kinds: str, buffer: Any) -> list[np.ndarray]:
    """Returns the arrays, which share the memory of a buffer."""
    return [np.ndarray(shape, dtype, buffer, begin) for begin, dtype, shape in _places(kinds)]


def sendable(buffer: Any) -> Any:
    """Returns bytes as a part of a message, many without a copy."""
    if len(buffer) > _MOST_INSIDE:
        return ToPickle(pickle.PickleBuffer(buffer))
    return bytes(buffer)


@functools.lru_cache(_KEPT)
def as_text(rows: tuple[Any, ...]) -> str:
    """Returns numbers, or rows of numbers and words, as text."""
    return json.dumps(rows)


@functools.lru_cache(_KEPT)
def from_text(text: str) -> list[Any]:
    """Returns the rows, which nobody may change."""
    rows: list[Any] = json.loads(text)
    return rows


@functools.lru_cache(_KEPT)
def kinds_text(kinds: tuple[tuple[tuple[int, ...], np.dtype], ...]) -> str:
    """Returns the shapes and dtypes of arrays as text."""
    return as_text(tuple((shape, dtype.name) for shape, dtype in kinds))


@functools.lru_cache(_KEPT)
def _places(kinds: str) -> list[tuple[int, np.dtype, tuple[int, ...]]]:
    begin, places = 0, []
    for dimensions, name in from_text(kinds):
        shape, dtype = tuple(dimensions), _dtype_named(name)
        places.append((begin, dtype, shape))
        begin += math.prod(shape) * dtype.itemsize
    return places


def _dtype_named(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:  # bfloat16 and the like
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _scattered(
    combine: Callable[[np.ndarray, np.ndarray, np.ndarray], None],
) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    def apply(value: np.ndarray, indices: np.ndarray, rows: np.ndarray) -> None:
        # A compiled step of JAX drops rows outside of the variable, too.
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


APPLY: Final[dict[str, Callable[..., Any]]] = {
    "assign": lambda value, new: np.copyto(value, new, casting="unsafe"),
    "assign_add": lambda value, delta: np.add(value, delta, out=value),
    "assign_sub": lambda value, delta: np.subtract(value, delta, out=value),
    "scatter_add": _scattered(np.add.at),
    "scatter_sub": _scattered(np.subtract.at),
    "scatter_mul": _scattered(np.multiply.at),
    "scatter_div": _scattered(_divide),
    "scatter_min": _scattered(np.minimum.at),
    "scatter_max": _scattered(np.maximum.at),
    "scatter_update": _scattered(_replace),
}
"""In-place changes of a value; the operations of `variables.operations`."""


@final
class Values:
    """The values of one session on one parameter server, each with the number of its changes."""

    def __init__(self) -> None:
        self._values: dict[int, np.ndarray] = {}
        self._versions: dict[int, int] = {}
        self._numbers = itertools.count()

    def make(self, kinds: str, buffer: Any) -> int:
        """Keeps a copy of a packed value, and returns its number."""
        number = next(self._numbers)
        self._values[number] = np.array(unpacked(kinds, buffer)[0])
        self._versions[number] = 0
        return number

    def read(self, numbers: str) -> tuple[list[int], str, Any]:
        """Returns the versions of values, and a packed copy of the values."""
        wanted = from_text(numbers)
        kinds, buffer = packed([self._values[number] for number in wanted])
        return [self._versions[number] for number in wanted], kinds, sendable(buffer)

    def update(self, changes: str, kinds: str, buffer: Any) -> list[int]:
        """Applies the changes of one message at once, and returns the versions before them."""
        left = iter(unpacked(kinds, buffer))
        before = []
        for number, verb, count in from_text(changes):
            APPLY[verb](self._values[number], *(next(left) for _ in range(count)))
            before.append(self._versions[number])
            self._versions[number] += 1
        return before

    def forget(self, number: int) -> None:
        """Frees a value."""
        self._values.pop(number, None)
        self._versions.pop(number, None)
