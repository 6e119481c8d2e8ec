"""Sources of rows and numbers: from_tensor_slices, from_tensors, range, counter."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.arguments import integer
from distlab.data.plan.convert import to_numpy
from distlab.data.plan.memory import aligned_empty, own
from distlab.data.plan.nest import AnyDataset, leaves, map_nest
from distlab.data.plan.plan import INFINITE_CARDINALITY, Source
from distlab.data.plan.spec import TensorSpec, row_spec, spec_of
from distlab.errors import InvalidArgumentError, StructureError, ValueShapeError
from distlab.text.shown import shown


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """The rows of read-only arrays of one length: batches may be views, even on devices."""

    arrays: Any
    size: int

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of a row."""
        return row_spec(spec_of(self.arrays))

    @property
    def cardinality(self) -> int:
        """The number of rows."""
        return self.size

    def gather(self, positions: Any) -> Any:
        """Fetches rows: a view when they are consecutive, a copy otherwise."""
        rows = _as_slice(positions)
        if rows is not None:
            return map_nest(lambda array: array[rows], self.arrays)
        if positions.ndim == 0:
            return map_nest(lambda array: array[positions], self.arrays)
        return map_nest(lambda array: _take(array, positions), self.arrays)


@dataclass(frozen=True, eq=False)
class RangeSource(Source):
    """Numbers from `start` in steps of `step`, computed during a read."""

    start: int
    step: int
    size: int
    dtype: np.dtype[Any]

    @property
    def spec(self) -> TensorSpec:
        """A scalar."""
        return TensorSpec((), self.dtype)

    @property
    def cardinality(self) -> int:
        """The number of numbers."""
        return self.size

    def gather(self, positions: Any) -> Any:
        """Computes the numbers."""
        return (self.start + self.step * positions).astype(self.dtype, copy=False)


def rows_of(tensors: Any) -> ArraySource:
    """Returns the source of the rows of a nest of array-likes."""
    arrays = map_nest(_constant, to_numpy(tensors))
    shapes = [array.shape for array in leaves(arrays)]
    if not shapes:
        raise StructureError(
            f"from_tensor_slices needs at least one array, got {shown(tensors)}. Pass an array, or "
            "use Dataset.range for numbers."
        )
    for shape in shapes:
        if not shape:
            raise ValueShapeError(
                "Arrays of from_tensor_slices must have at least one dimension, whose rows are "
                f"the elements; got {shown(tensors)}. Use from_tensors for one element."
            )
    lengths = [shape[0] for shape in shapes]
    if len(set(lengths)) > 1:
        raise ValueShapeError(
            f"Arrays of from_tensor_slices must have one length, got {lengths}. "
            "Give them the same first dimension."
        )
    return ArraySource(arrays, lengths[0])


def single(tensors: Any) -> ArraySource:
    """Returns the source whose one element is `tensors`."""
    return ArraySource(map_nest(lambda value: _constant(value)[np.newaxis], to_numpy(tensors)), 1)


def numbers(args: Sequence[Any], output_type: Any = None) -> RangeSource:
    """Returns the source of `range(*args)`."""
    span = range(*(integer("range", "An argument", arg) for arg in args))
    dtype = number_dtype("range", "output_type", output_type)
    return RangeSource(span.start, span.step, len(span), dtype)


def counted(start: Any, step: Any, output_type: Any) -> RangeSource:
    """Returns the source of `start`, `start + step`, and so on without end."""
    first, each = integer("counter", "start", start), integer("counter", "step", step)
    dtype = number_dtype("counter", "dtype", output_type)
    return RangeSource(first, each, INFINITE_CARDINALITY, dtype)


def number_dtype(verb: str, name: str, dtype: Any) -> np.dtype[Any]:
    """Returns a numeric dtype, int64 for None; TensorFlow's dtypes are accepted."""
    try:
        found = np.dtype(np.int64 if dtype is None else getattr(dtype, "as_numpy_dtype", dtype))
    except Exception:  # noqa: BLE001 - whatever the object does with it
        found = np.dtype(object)
    if not (np.issubdtype(found, np.number) or (found.kind == "V" and found.names is None)):
        raise InvalidArgumentError(
            f"{name} of {verb} must be a numeric dtype such as np.int32, got {shown(dtype)}. "
            "Leave it out for int64."
        )
    return found.newbyteorder("=")


def _constant(value: Any) -> np.ndarray[Any, Any]:
    """Returns a read-only array: a copy, unless nobody can write into the array's memory."""
    if isinstance(value, AnyDataset):
        raise StructureError(
            "Components of from_tensors and from_tensor_slices must be arrays, got a Dataset. "
            "Use Dataset.zip for datasets side by side."
        )
    array = np.empty((), dtype=object) if isinstance(value, bytes) else np.asarray(value)
    if isinstance(value, bytes):
        array[()] = value
    constant: np.ndarray[Any, Any] = own(array)
    return constant


def _as_slice(positions: Any) -> slice | None:
    """Returns the slice that ascending consecutive positions make, else None."""
    if positions.ndim != 1 or not len(positions):
        return None
    first, last = int(positions[0]), int(positions[-1])
    if last - first != len(positions) - 1 or not (np.diff(positions) == 1).all():
        return None
    return slice(first, last + 1)


def _take(array: np.ndarray[Any, Any], positions: Any) -> np.ndarray[Any, Any]:
    out = None
    if array.dtype != object:
        out = aligned_empty(positions.shape + array.shape[1:], array.dtype)
    # Positions are valid by construction; "clip" spares NumPy the check.
    rows: np.ndarray[Any, Any] = array.take(positions, axis=0, out=out, mode="clip")
    rows.flags.writeable = False
    return rows
