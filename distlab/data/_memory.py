"""Host memory that devices can use without a copy.

JAX aliases a NumPy buffer that begins at a multiple of 64 bytes. NumPy's own
buffers begin at multiples of 16. Gathering 512 rows of 784 floats and placing
them on 8 CPU devices reached 0.63 million rows a second with NumPy's buffers,
and 0.94 with these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ALIGNMENT = 64
_WORTHWHILE_BYTES = 1 << 14


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns an uninitialised C-ordered array, aligned if it is large.

    Args:
      shape: The dimensions.
      dtype: The element type, not `object`.

    Returns:
      The array.
    """
    size = dtype.itemsize
    for dimension in shape:
        size *= dimension
    if size < _WORTHWHILE_BYTES:
        return np.empty(shape, dtype)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    offset = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return np.ndarray(shape, dtype, memory, offset)


def own(leaf: Any) -> Any:
    """Returns a read-only array that nobody else can write into."""
    if not isinstance(leaf, np.ndarray) or not leaf.flags.writeable:
        return leaf
    copy = leaf.copy() if leaf.dtype.kind == "O" else aligned_empty(leaf.shape, leaf.dtype)
    copy[...] = leaf
    copy.flags.writeable = False
    return copy
