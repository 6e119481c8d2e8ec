"""Specs of elements: shapes and dtypes, with unknown dimensions."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from distlab.data.plan.nest import AnyDataset, is_leaf, leaves, map_nest, refuse_structures
from distlab.errors import ArgumentTypeError, StructureError, ValueShapeError
from distlab.text.shown import shown

_FLOAT32: Final[np.dtype[Any]] = np.dtype("float32")


@dataclass(frozen=True, init=False)
class TensorSpec:
    """Shape and dtype of one component of a dataset's elements.

    Args:
      shape: The dimensions.
      dtype: The element type, as NumPy takes one.
      name: Ignored.

    Attributes:
      shape: The dimensions; None for one that varies, such as the first of a batch
        that may be partial.
      dtype: The element type, float32 by default; `object` for strings, which are `bytes`, given
        as `"string"`, too.

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

    def __init__(
        self, shape: Iterable[int | None], dtype: Any = _FLOAT32, name: str | None = None
    ) -> None:
        del name  # of TensorFlow's graphs
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "dtype", checked_dtype(dtype))

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """Returns a dtype of NumPy, in the machine's byte order, as elements are."""
    if isinstance(dtype, str) and dtype == "string":
        return np.dtype(object)
    try:
        if dtype is not None:  # which NumPy takes for float64
            return np.dtype(dtype).newbyteorder("=")
    except TypeError:
        pass
    raise ArgumentTypeError(
        f"A component's dtype must be one of NumPy's, got {shown(dtype)}. Write for example "
        "'float32', or 'string' for text; of several components, a dict or tuple has one for each."
    )


@dataclass(frozen=True)
class DatasetSpec:
    """The spec of a component that is a dataset itself, as `window` makes.

    Attributes:
      element_spec: The nest of specs of its elements.

    Example:
      >>> import distlab as dl
      >>> dl.data.Dataset.range(10).window(5).element_spec
      DatasetSpec(element_spec=TensorSpec(shape=(), dtype=dtype('int64')))
    """

    element_spec: Any

    shape: ClassVar[tuple[()]] = ()
    rank: ClassVar[int] = 0
    dtype: ClassVar[np.dtype[Any]] = np.dtype(object)


def spec_of(value: Any) -> Any:
    """Returns the nest of `TensorSpec` of one element."""
    return map_nest(_leaf_spec, value)


def row_spec(nest: Any) -> Any:
    """Returns the specs of the rows of components: their first dimension removed."""
    refuse_datasets("unbatch", nest)
    return map_nest(lambda spec: TensorSpec(spec.shape[1:], spec.dtype), nest)


def batch_spec(nest: Any, size: int | None) -> Any:
    """Returns the specs of batches of `size` elements; None if sizes vary."""
    refuse_datasets("batch", nest)
    return map_nest(lambda spec: TensorSpec((size, *spec.shape), spec.dtype), nest)


def refuse_datasets(verb: str, nest: Any) -> None:
    """Checks that no component is a dataset."""
    for leaf in leaves(nest):
        refuse_dataset(verb, leaf)


def refuse_dataset(verb: str, leaf: Any) -> None:
    """Checks that a component, or its spec, is not that of a dataset."""
    if isinstance(leaf, DatasetSpec | AnyDataset):
        raise StructureError(
            f"{verb} needs components that are arrays, and one is a Dataset. Read it with "
            "flat_map first, for example flat_map(lambda window: window.batch(n))."
        )


def require_alike(nodes: Iterable[Any]) -> None:
    """Checks that the nodes whose specs are known before a read have elements of one kind."""
    specs = [node.spec for node in nodes if node.exact]
    if specs:
        functools.reduce(common_spec, specs)


def common_spec(first: Any, second: Any) -> Any:
    """Returns specs that elements of both nests satisfy, None where dimensions differ."""

    def common(one: Any, other: Any) -> TensorSpec | DatasetSpec:
        if not is_leaf(other):
            refuse_structures(first, second)
        return _common_leaf(one, other)

    return map_nest(common, first, second)


def zeros(nest: Any) -> Any:
    """Returns an element of zeros that has the specs, 0 for unknown dimensions."""
    return map_nest(_zero_leaf, nest)


def _zero_leaf(spec: TensorSpec | DatasetSpec) -> Any:
    if isinstance(spec, DatasetSpec):
        raise StructureError(
            "The specs of functions of datasets are those of their first result, and there is no "
            "first element here."
        )
    if spec.dtype == object and not spec.shape:
        return b""
    shape = tuple(size or 0 for size in spec.shape)
    return np.full(shape, b"", object) if spec.dtype == object else np.zeros(shape, spec.dtype)


def _leaf_spec(value: Any) -> TensorSpec | DatasetSpec:
    if isinstance(value, bytes):
        return TensorSpec((), np.dtype(object))
    if isinstance(value, AnyDataset):
        return DatasetSpec(value.plan.spec)
    return TensorSpec(value.shape, value.dtype)


def _common_leaf(
    first: TensorSpec | DatasetSpec, second: TensorSpec | DatasetSpec
) -> TensorSpec | DatasetSpec:
    if isinstance(first, DatasetSpec) and isinstance(second, DatasetSpec):
        return DatasetSpec(common_spec(first.element_spec, second.element_spec))
    if first.dtype != second.dtype or first.rank != second.rank:
        raise ValueShapeError(
            "Elements of combined datasets must have one dtype and rank, got "
            f"{first.dtype}{list(first.shape)} and {second.dtype}{list(second.shape)}. Make them "
            "alike, for example with map."
        )
    shape = tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
    return TensorSpec(shape, first.dtype)
