"""Arrays packed in one buffer, since a message of one large part is faster than one of many.

What describes them is text, which both sides keep: Dask takes long to measure and to encode lists,
and the same variables are read and changed again and again.
"""

from __future__ import annotations

import functools
import itertools
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


def packed(arrays: Sequence[np.ndarray]) -> tuple[Described, np.ndarray]:
    """Returns what describes arrays, and a copy of their bytes."""
    described = _described(tuple((array.shape, array.dtype) for array in arrays))
    if not arrays:
        return described, np.empty(0, np.uint8)
    return described, np.concatenate([_bytes(array) for array in arrays])


def sent(buffer: np.ndarray) -> Any:
    """Returns a buffer as a part of a message, a large one without a copy."""
    return pickle.PickleBuffer(buffer.data) if buffer.nbytes > _MOST_INSIDE else buffer.tobytes()


def unpacked(described: Described, buffer: Any) -> list[np.ndarray]:
    """Returns the arrays, which share the memory of a buffer."""
    whole = np.frombuffer(buffer, np.uint8)
    return [
        whole[begin:end].view(dtype).reshape(shape)
        for begin, end, dtype, shape in _places(described)
    ]


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
def _described(kinds: tuple[tuple[tuple[int, ...], np.dtype], ...]) -> Described:
    return as_text(tuple((shape, dtype.name) for shape, dtype in kinds))


@functools.lru_cache(_KEPT)
def _places(described: Described) -> list[tuple[int, int, np.dtype, tuple[int, ...]]]:
    kinds = [(tuple(shape), dtype_named(name)) for shape, name in from_text(described)]
    ends = itertools.accumulate(math.prod(shape) * dtype.itemsize for shape, dtype in kinds)
    begin, places = 0, []
    for (shape, dtype), end in zip(kinds, ends, strict=True):
        places.append((begin, end, dtype, shape))
        begin = end
    return places


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
