"""Specs of elements: shapes and dtypes, with unknown dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data._nest import map_nest
from distlab.errors import ValueShapeError


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one component of a dataset's elements.

    Attributes:
      shape: The dimensions; None for one that varies, such as the first of a batch
        that may be partial.
      dtype: The element type; `object` for strings, which are `bytes`.

    Example:
      >>> import distlab as dl
      >>> spec = dl.data.TensorSpec([None, 28, 28], "float32")
      >>> spec
      TensorSpec(shape=(None, 28, 28), dtype=dtype('float32'))
      >>> spec.rank
      3
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __post_init__(self) -> None:
        """Converts the arguments to a tuple and a dtype."""
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def _repr_html_(self) -> str:
        """Returns a table of the spec, for notebooks."""
        from distlab.values.reprs import tensor_spec_html

        return tensor_spec_html(self)


def spec_of(value: Any) -> Any:
    """Returns the nest of `TensorSpec` of one element."""
    return map_nest(_leaf_spec, value)


def row_spec(nest: Any) -> Any:
    """Returns the specs of the rows of components: their first dimension removed."""
    return map_nest(lambda spec: TensorSpec(spec.shape[1:], spec.dtype), nest)


def batch_spec(nest: Any, size: int | None) -> Any:
    """Returns the specs of batches of `size` elements; None if sizes vary."""
    return map_nest(lambda spec: TensorSpec((size, *spec.shape), spec.dtype), nest)


def common_spec(first: Any, second: Any) -> Any:
    """Returns specs that elements of both nests satisfy, None where dimensions differ.

    Raises:
      StructureError: The structures differ.
    """
    return map_nest(_common_leaf, first, second)


def zeros(nest: Any) -> Any:
    """Returns an element of zeros that has the specs, 0 for unknown dimensions."""
    return map_nest(_zero_leaf, nest)


def _zero_leaf(spec: TensorSpec) -> Any:
    if spec.dtype == object and not spec.shape:
        return b""
    shape = tuple(size or 0 for size in spec.shape)
    return np.full(shape, b"", object) if spec.dtype == object else np.zeros(shape, spec.dtype)


def _leaf_spec(value: Any) -> TensorSpec:
    if isinstance(value, bytes):
        return TensorSpec((), np.dtype(object))
    return TensorSpec(value.shape, value.dtype)


def _common_leaf(first: TensorSpec, second: TensorSpec) -> TensorSpec:
    if first.dtype != second.dtype or first.rank != second.rank:
        raise ValueShapeError(
            "Concatenated elements must have one dtype and rank, got "
            f"{first.dtype}{list(first.shape)} and {second.dtype}{list(second.shape)}"
        )
    shape = tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
    return TensorSpec(shape, first.dtype)
