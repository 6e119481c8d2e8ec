"""padded_batch: elements of different shapes padded to one, and stacked."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.convert import leaf_to_numpy
from distlab.data.plan.engine import Element, Reader, Stacked
from distlab.data.plan.memory import aligned_empty
from distlab.data.plan.nest import is_leaf, leaves, map_nest, up_to
from distlab.data.plan.plan import Opener, Reading, Unary
from distlab.data.plan.spec import TensorSpec, refuse_datasets
from distlab.data.transforms.batch import batch_count, joined_indices, require_alike
from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown

Shape = tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class PaddedBatch(Unary):
    """Pads `size` elements to one shape and stacks them along a new first dimension."""

    size: int
    drop_remainder: bool
    padded_shapes: Any
    padding_values: Any

    @functools.cached_property
    def spec(self) -> Any:
        """The padded shapes, with a new first dimension."""
        first = self.size if self.drop_remainder else None
        specs = self.input.spec
        refuse_datasets("padded_batch", specs)
        shapes, _ = self._targets(specs)

        def padded(spec: TensorSpec) -> TensorSpec:
            target = next(shapes)
            if target is None:
                # Shapes of a first element only do not tell the length of the longest.
                target = spec.shape if self.input.exact else (None,) * spec.rank
            _check_shape(target, spec.shape)
            return TensorSpec((first, *target), spec.dtype)

        return map_nest(padded, specs)

    @property
    def cardinality(self) -> int:
        """The number of batches."""
        return batch_count(self.input.cardinality, self.size, drop_remainder=self.drop_remainder)

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the batches."""
        reader = open_input(self.input, reading)
        return Stacked(reader, self.size, self._stack, drop_remainder=self.drop_remainder)

    def _stack(self, elements: Sequence[Element]) -> Element:
        first = elements[0].value
        shapes, values = self._targets(first)
        stack = functools.partial(_stack_padded, shapes, values)
        value = map_nest(stack, *(element.value for element in elements))
        return Element(value, joined_indices(elements))

    def _targets(self, like: Any) -> tuple[Iterator[Shape | None], Iterator[Any]]:
        """Returns the padded shape and the padding value of each component of `like`."""
        shapes: Iterator[Any] = iter([None] * len(list(leaves(like))))
        if self.padded_shapes is not None:
            shapes = iter(shapes_like(like, self.padded_shapes))
        values = self.padding_values
        if values is None or is_leaf(values):
            return shapes, iter([values] * len(list(leaves(like))))
        return shapes, up_to("padding_values of padded_batch", like, values)


def shapes_like(like: Any, padded_shapes: Any) -> list[Shape]:
    """Returns the padded shapes of the components of `like`."""
    return [_shape(each) for each in up_to("padded_shapes of padded_batch", like, padded_shapes)]


def _shape(given: Any) -> Shape:
    """Returns a padded shape; -1 in it means None."""
    try:
        sizes = given if np.iterable(given) else [given]
        return tuple(None if size in {None, -1} else operator.index(size) for size in sizes)
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        raise InvalidArgumentError(
            "A shape in padded_shapes of padded_batch must be a sequence of sizes, with None for "
            f"the longest of a batch, got {shown(given)}. Write for example [None, 3]."
        ) from None


def _check_shape(target: Shape, shape: Shape) -> None:
    """Checks that a component can be padded to a shape."""
    if len(target) != len(shape):
        raise InvalidArgumentError(
            f"The padded shape {list(target)} of padded_batch must have as many dimensions as the "
            f"component, whose shape is {list(shape)}. Give one size, or None, for each."
        )
    for most, size in zip(target, shape, strict=True):
        if most is not None and size is not None and size > most:
            raise InvalidArgumentError(
                f"padded_batch can't pad shape {list(shape)} to {list(target)}, which is smaller. "
                "Use None for a dimension as long as the longest of the batch."
            )


def _stack_padded(shapes: Iterator[Shape | None], values: Iterator[Any], *parts: Any) -> Any:
    """Pads the values of one component to one shape, and stacks them."""
    target, value = next(shapes), next(values)
    require_alike("padded_batch", parts)
    parts = tuple(_scalar_string(part) if isinstance(part, bytes) else part for part in parts)
    rank = parts[0].ndim
    if any(part.ndim != rank for part in parts):
        raise InvalidArgumentError(
            "Elements of a padded batch must have one number of dimensions, got shapes "
            f"{[part.shape for part in parts]}."
        )
    longest = tuple(max(part.shape[axis] for part in parts) for axis in range(rank))
    if target is not None:
        for part in parts:
            _check_shape(target, part.shape)
        longest = tuple(
            size if most is None else most for most, size in zip(target, longest, strict=True)
        )
    return _filled(parts, longest, value)


def _filled(parts: Sequence[np.ndarray], shape: tuple[int, ...], value: Any) -> np.ndarray:
    dtype = parts[0].dtype
    full = (len(parts), *shape)
    batch = np.empty(full, dtype) if dtype.kind == "O" else aligned_empty(full, dtype)
    filler = _padding(value, dtype)
    for row, part in zip(batch, parts, strict=True) if shape else ():
        if part.shape != shape:
            row[...] = filler
        row[tuple(map(slice, part.shape))] = part
    if not shape:
        batch[...] = [part[()] for part in parts]
    batch.flags.writeable = False
    return batch


def _padding(value: Any, dtype: np.dtype[Any]) -> Any:
    if value is None:
        return b"" if dtype.kind == "O" else np.zeros((), dtype)
    found = leaf_to_numpy(value) if is_leaf(value) else ()
    if isinstance(found, bytes) and dtype.kind == "O":
        return found
    if isinstance(found, np.ndarray | np.generic) and not found.ndim and dtype.kind != "O":
        if found.dtype == dtype:
            return found
        if type(value) in {bool, int, float, complex}:
            with np.errstate(invalid="ignore"):  # nan and inf as integers, which are refused
                converted = np.asarray(value).astype(dtype)
            if dtype.kind in "fcV" or converted == value:
                return converted
    raise InvalidArgumentError(
        f"A padding value of padded_batch must be a scalar of the component's dtype, {dtype}, got "
        f"{shown(value)}. Give one value for each component, in the structure of an element."
    )


def _scalar_string(value: bytes) -> np.ndarray:
    array = np.empty((), dtype=object)
    array[()] = value
    return array
