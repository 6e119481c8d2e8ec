"""Arrays packed in one buffer, since a message of one large part is faster than one of many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Described: TypeAlias = list[tuple[tuple[int, ...], str]]
"""The shape and the dtype of each array."""


def packed(arrays: Sequence[np.ndarray]) -> tuple[Described, np.ndarray]:
    """Returns what describes arrays, and a copy of their bytes."""
    described = [(tuple(array.shape), array.dtype.name) for array in arrays]
    if not arrays:
        return described, np.empty(0, np.uint8)
    return described, np.concatenate([_bytes(array) for array in arrays])


def unpacked(described: Sequence[Sequence[Any]], buffer: np.ndarray) -> list[np.ndarray]:
    """Returns the arrays, which share the buffer's memory."""
    arrays = []
    begin = 0
    for shape, name in described:
        dtype = dtype_named(name)
        end = begin + math.prod(shape) * dtype.itemsize
        arrays.append(buffer[begin:end].view(dtype).reshape(shape))
        begin = end
    return arrays


def dtype_named(name: str) -> np.dtype:
    """Returns a dtype by its name; those of JAX beyond NumPy's come from ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
