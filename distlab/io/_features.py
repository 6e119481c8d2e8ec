"""Descriptions of the features that parse_example reads, one for each key."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from distlab.errors import InvalidArgumentError, UnsupportedError
from distlab.text.shown import shown

_STRING: Final = np.dtype(object)

LISTS: Final = {
    _STRING: "bytes_list",
    np.dtype(np.float32): "float_list",
    np.dtype(np.int64): "int64_list",
}
"""The kind of feature that holds values of a dtype."""
DTYPES: Final = {kind: dtype for dtype, kind in LISTS.items()}
"""The dtype of the values of a kind of feature."""


class KeyFeature:
    """Base of the descriptions of a key of the examples."""

    dtype: Any


@dataclass(frozen=True)
class FixedLenFeature(KeyFeature):
    """A feature with the same number of values in each example (`tf.io.FixedLenFeature`).

    It becomes an array of `shape`; in a batch, of `(batch, *shape)`.

    Attributes:
      shape: The shape of one example's value: a sequence of sizes, or one size.
      dtype: `float32`, `int64`, or a string type (`bytes`, `str`, `"string"`).
      default_value: The value of an example that lacks the feature. None makes that
        an error.

    Raises:
      InvalidArgumentError: An argument has another form, or the default value has not
        as many values as `shape`.

    Example:
      >>> import distlab as dl
      >>> record = dl.io.serialize_example({"size": [3, 4]})
      >>> features = {
      ...     "size": dl.io.FixedLenFeature([2], "int64"),
      ...     "name": dl.io.FixedLenFeature([], bytes, default_value="none"),
      ... }
      >>> dl.io.parse_single_example(record, features)
      {'size': array([3, 4]), 'name': b'none'}
    """

    shape: Any
    dtype: Any
    default_value: Any = None
    default: Sequence[Any] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Checks the arguments and converts them to NumPy's types."""
        shape = _shape(self, self.shape)
        dtype = _dtype(self, self.dtype)
        default = None
        if self.default_value is not None:
            default = _default(self, self.default_value, dtype, math.prod(shape))
        _set(self, shape=shape, dtype=dtype, default=default)


@dataclass(frozen=True)
class FixedLenSequenceFeature(KeyFeature):
    """A feature with any number of blocks of one shape (`tf.io.FixedLenSequenceFeature`).

    It becomes an array of shape `(blocks, *shape)`; in a batch, of
    `(batch, most_blocks, *shape)`, where shorter ones are padded.

    Attributes:
      shape: The shape of one block: a sequence of sizes, or one size.
      dtype: `float32`, `int64`, or a string type (`bytes`, `str`, `"string"`).
      allow_missing: True, as TensorFlow requires it for examples: one that lacks the
        feature has no blocks.
      default_value: The padding; None means 0 or the empty string.

    Raises:
      InvalidArgumentError: An argument has another form or value.

    Example:
      >>> import distlab as dl
      >>> records = [dl.io.serialize_example({"ids": ids}) for ids in ([1, 2, 3], [4])]
      >>> feature = dl.io.FixedLenSequenceFeature(
      ...     [], "int64", allow_missing=True, default_value=-1
      ... )
      >>> dl.io.parse_example(records, {"ids": feature})["ids"]
      array([[ 1,  2,  3],
             [ 4, -1, -1]])
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None
    padding: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Checks the arguments and converts them to NumPy's types."""
        shape = _shape(self, self.shape)
        dtype = _dtype(self, self.dtype)
        if not self.allow_missing or not math.prod(shape):
            raise InvalidArgumentError(
                "A FixedLenSequenceFeature of tf.train.Example needs allow_missing=True and blocks "
                f"of at least one value, got {self!r}. Write FixedLenSequenceFeature(shape, "
                "dtype, allow_missing=True)."
            )
        padding: Any = b"" if dtype == _STRING else dtype.type(0)
        if self.default_value is not None:
            padding = _default(self, self.default_value, dtype, 1)[0]
        _set(self, shape=shape, dtype=dtype, padding=padding)


@dataclass(frozen=True)
class VarLenFeature(KeyFeature):
    """A feature with any number of values (`tf.io.VarLenFeature`).

    It becomes a `Ragged`, where TensorFlow has a SparseTensor: one example's values,
    or a batch's values padded to the longest, with their lengths.

    Attributes:
      dtype: `float32`, `int64`, or a string type (`bytes`, `str`, `"string"`).

    Raises:
      InvalidArgumentError: `dtype` is another one.

    Example:
      >>> import distlab as dl
      >>> records = [dl.io.serialize_example({"ids": ids}) for ids in ([1, 2, 3], [4])]
      >>> ids = dl.io.parse_example(records, {"ids": dl.io.VarLenFeature("int64")})["ids"]
      >>> ids.dense
      array([[1, 2, 3],
             [4, 0, 0]])
      >>> ids.lengths
      array([3, 1])
    """

    dtype: Any

    def __post_init__(self) -> None:
        """Converts the dtype to NumPy's."""
        _set(self, dtype=_dtype(self, self.dtype))


@dataclass(frozen=True)
class RaggedFeature(KeyFeature):
    """A feature with any number of values (`tf.io.RaggedFeature`).

    It becomes one example's values, an array of shape `(n,)`; in a batch, a `Ragged`.

    Attributes:
      dtype: `float32`, `int64`, or a string type (`bytes`, `str`, `"string"`).
      value_key: The key of the values in the examples; None for the feature's own.
      partitions: Empty: values of several ragged dimensions are not supported.
      row_splits_dtype: Accepted for compatibility with TensorFlow; lengths are int64.
      validate: Accepted for compatibility with TensorFlow.

    Raises:
      InvalidArgumentError: `dtype` is another one.
      UnsupportedError: There are partitions.

    Example:
      >>> import distlab as dl
      >>> record = dl.io.serialize_example({"ids": [1, 2, 3]})
      >>> dl.io.parse_single_example(record, {"ids": dl.io.RaggedFeature("int64")})
      {'ids': array([1, 2, 3])}
    """

    dtype: Any
    value_key: str | None = None
    partitions: Sequence[Any] = ()
    row_splits_dtype: Any = np.int32
    validate: bool = False

    def __post_init__(self) -> None:
        """Converts the dtype to NumPy's."""
        _set(self, dtype=_dtype(self, self.dtype))
        if self.partitions:
            raise UnsupportedError(
                "A RaggedFeature here has one ragged dimension, so partitions must be empty, got "
                f"{shown(self.partitions)}. Parse the keys of the partitions as features of their "
                "own."
            )


def _set(feature: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(feature, name, value)


def _dtype(feature: Any, dtype: Any) -> np.dtype[Any]:
    given = getattr(dtype, "as_numpy_dtype", dtype)
    try:
        found = np.dtype({"string": object, float: np.float32}.get(given, given))
    except Exception:  # noqa: BLE001 - any code of the user's
        found = None
    if found is not None and found.kind in "OSU":
        return _STRING
    if found not in LISTS or dtype is None:
        raise InvalidArgumentError(
            f"dtype of {type(feature).__name__} must be float32, int64 or bytes, which are all "
            f"that a tf.train.Example holds, got {shown(dtype)}. Parse it as one of these, and "
            "convert it then."
        )
    return found


def _shape(feature: Any, shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(map(operator.index, shape if np.iterable(shape) else [shape]))
    except TypeError:
        sizes = (-1,)
    if any(not 0 <= size < 1 << 63 for size in sizes):
        raise InvalidArgumentError(
            f"shape of {type(feature).__name__} must be known sizes, got {shown(shape)}. For a "
            "size that varies use FixedLenSequenceFeature or VarLenFeature."
        )
    return sizes


def _default(feature: Any, value: Any, dtype: np.dtype[Any], size: int) -> Sequence[Any]:
    """Returns the values of a default value, flat."""
    flat = np.asarray(value, dtype=object).ravel().tolist()
    if dtype == _STRING:
        flat = [item.encode() if isinstance(item, str) else item for item in flat]
        fits = all(isinstance(item, bytes) for item in flat)
    else:
        kinds = "iu" if dtype.kind == "i" else "iuf"
        fits = all(np.asarray(item).dtype.kind in kinds for item in flat)
    if not fits or len(flat) != size:
        raise InvalidArgumentError(
            f"default_value of {type(feature).__name__} must be {size} values of dtype "
            f"{'bytes' if dtype == _STRING else dtype}, got {shown(value)}. Give as many as shape "
            "has."
        )
    return flat
