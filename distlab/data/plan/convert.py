"""Conversion of elements to NumPy values with tf.data's dtypes.

Python numbers become float32 and int32 as in TensorFlow; values with a dtype
keep it, in the machine's byte order; strings become `bytes`, alone or in arrays
of dtype object.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distlab.data.plan.memory import own
from distlab.data.plan.nest import AnyDataset, map_nest
from distlab.errors import StructureError, ValueShapeError
from distlab.text.shown import shown, shown_clause

_PYTHON_DTYPES = {bool: np.bool_, int: np.int32, float: np.float32, complex: np.complex128}


def to_numpy(nest: Any) -> Any:
    """Converts each leaf of a nest to a NumPy array, NumPy scalar or `bytes`."""
    return map_nest(leaf_to_numpy, _present(nest))


def to_own(nest: Any) -> Any:
    """Converts leaves, and copies arrays that whatever made them may fill again."""
    return map_nest(_leaf_to_own, _present(nest))


def _present(element: Any) -> Any:
    """Checks that an element is more than the None of a function without `return`."""
    if element is None:
        raise StructureError(
            "An element of a dataset can't be None alone. Return it from the function, or a tuple "
            "with None in it."
        )
    return element


def _leaf_to_own(value: Any) -> Any:
    return own(leaf_to_numpy(value))


def leaf_to_numpy(value: Any) -> Any:
    """Converts one leaf; see `to_numpy`."""
    if isinstance(value, np.ndarray | np.generic):
        return _native(value) if value.dtype.kind not in "OUS" else _to_bytes(np.asarray(value))
    if isinstance(value, bytes | AnyDataset):
        return value  # a dataset can be a component
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return _from_list(value)
    if type(value) in _PYTHON_DTYPES:
        return _python_number(np.asarray(value), _PYTHON_DTYPES[type(value)])
    array = np.asarray(value)
    return _to_bytes(array, value) if array.dtype.kind in "OUS" else _native(array)


def _native(array: Any) -> Any:
    """Returns an array in the machine's byte order: devices would take others' bytes for it."""
    if array.dtype.isnative:
        return array
    swapped = array.astype(array.dtype.newbyteorder("="))
    swapped.flags.writeable = False  # nobody else has it, so that it needs no second copy
    return swapped


def _from_list(value: list[Any]) -> Any:
    if any(_has_dtype(item) for item in value):
        value = [leaf_to_numpy(item) for item in value]
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueShapeError(
            f"A list must be rectangular to become an array; NumPy's error: {shown_clause(error)}. "
            "Use a tuple for components of different shapes."
        ) from error
    if array.dtype.kind in "OUS":
        # Anew, because NumPy's own strings drop zero bytes at their end.
        return _to_bytes(np.asarray(value, dtype=object), value)
    if _has_python_numbers(value):
        dtype = {"f": np.float32, "i": np.int32, "u": np.int32}.get(array.dtype.kind)
        # An empty list is float64 in NumPy and float32 in TensorFlow.
        return array if dtype is None else _python_number(array, dtype)
    return array


def _has_dtype(item: Any) -> bool:
    return hasattr(item, "dtype") or hasattr(item, "__array__")


def _has_python_numbers(value: list[Any]) -> bool:
    """Returns whether the leaves are Python numbers, judged by the first leaf."""
    item: Any = value
    while isinstance(item, list | tuple):
        if not item:
            return True
        item = item[0]
    return type(item) in _PYTHON_DTYPES


def _python_number(array: np.ndarray[Any, Any], dtype: Any) -> Any:
    if dtype is np.int32 and array.size:
        low, high = array.min(), array.max()
        if low < -(2**31) or high >= 2**31:
            raise ValueShapeError(
                f"Python integers become int32 as in TensorFlow, got {shown(low)} to "
                f"{shown(high)}. Convert them to np.int64."
            )
    return array.astype(dtype)[()]


def _to_bytes(array: np.ndarray[Any, Any], given: Any = None) -> Any:
    """Returns strings as `bytes`, alone or in an array of dtype object."""
    flat = [_text_to_bytes(item, given) for item in array.ravel().tolist()]
    if array.ndim == 0:
        return flat[0]
    result = np.empty(len(flat), dtype=object)
    result[:] = flat
    return result.reshape(array.shape)


def _text_to_bytes(item: Any, given: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    name = type(item if given is None else given).__name__
    raise StructureError(
        f"A component of an element must be numbers or strings, got {name}. "
        "Convert it to a NumPy array, or leave it out."
    )
