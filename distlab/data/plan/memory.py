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
    """Returns an uninitialised C-ordered array, aligned if it is large."""
    size = dtype.itemsize
    for dimension in shape:
        size *= dimension
    if size < _WORTHWHILE_BYTES:
        return np.empty(shape, dtype)
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    offset = -memory.__array_interface__["data"][0] % _ALIGNMENT
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, offset)
    memory.flags.writeable = False  # but through the array, as `_is_constant` has to know
    return array


def own(leaf: Any) -> Any:
    """Returns a read-only array that nobody else can write into; other leaves unchanged."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    if not leaf.flags.writeable and _is_constant(leaf):
        return leaf
    if leaf.nbytes < _WORTHWHILE_BYTES or leaf.dtype.kind == "O":
        copy = leaf.copy()
    else:
        copy = aligned_empty(leaf.shape, leaf.dtype)
        copy[...] = leaf
    copy.flags.writeable = False
    return copy


def _is_constant(array: np.ndarray[Any, Any]) -> bool:
    """Returns whether neither the array nor one whose memory it shows can be written into."""
    behind: Any = array
    while behind is not None:
        if isinstance(behind, np.ndarray) and behind.flags.writeable:
            return False
        # Views that NumPy makes by strides have one that is no array in between, with a base, too.
        behind = getattr(behind, "base", None)
    return True
