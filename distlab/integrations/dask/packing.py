"""Arrays packed in one buffer, since a message of one large part is faster than one of many.

What describes them is text, which both sides keep: Dask takes long to measure and to encode lists,
and the same variables are read and changed again and again.
"""

from __future__ import annotations

import functools
import json
import math
import pickle
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

Described: TypeAlias = str
"""The shape and the dtype of each array."""

_KEPT: Final = 256
_MOST_INSIDE: Final = 1 << 14


def packed(arrays: Sequence[np.ndarray]) -> tuple[Described, bytes]:
    """Returns what describes arrays, and a copy of their bytes."""
    described = description(tuple([(array.shape, array.dtype) for array in arrays]))
    buffers: Any = arrays
    try:
        return described, b"".join(buffers)
    except TypeError:  # one is not contiguous, or of a type of ml_dtypes
        buffers = [_bytes(array) for array in arrays]
        return described, b"".join(buffers)


def sent(buffer: Any) -> Any:
    """Returns bytes as a part of a message, many without a copy."""
    if len(buffer) > _MOST_INSIDE:
        return pickle.PickleBuffer(buffer)
    return bytes(buffer)


def unpacked(described: Described, buffer: Any) -> list[np.ndarray]:
    """Returns the arrays, which share the memory of a buffer."""
    return [np.ndarray(shape, dtype, buffer, begin) for begin, dtype, shape in _places(described)]


def dtype_named(name: str) -> np.dtype:
    """Returns a dtype by its name; those of JAX beyond NumPy's come from ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


@functools.lru_cache(_KEPT)
def as_text(rows: tuple[Any, ...]) -> str:
    """Returns numbers, or rows of numbers and words, as text."""
    return json.dumps(rows)


@functools.lru_cache(_KEPT)
def from_text(text: str) -> list[Any]:
    """Returns what `as_text` was given, which nobody may change."""
    rows: list[Any] = json.loads(text)
    return rows


@functools.lru_cache(_KEPT)
def description(kinds: tuple[tuple[tuple[int, ...], np.dtype], ...]) -> Described:
    """Returns what describes arrays."""
    return as_text(tuple((shape, dtype.name) for shape, dtype in kinds))


@functools.lru_cache(_KEPT)
def _places(described: Described) -> list[tuple[int, np.dtype, tuple[int, ...]]]:
    """Returns where each array begins, its dtype and its shape."""
    begin, places = 0, []
    for dimensions, name in from_text(described):
        shape, dtype = tuple(dimensions), dtype_named(name)
        places.append((begin, dtype, shape))
        begin += math.prod(shape) * dtype.itemsize
    return places


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
