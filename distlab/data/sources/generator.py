"""from_generator: the values that a Python generator function yields."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.convert import leaf_to_numpy, to_own
from distlab.data.plan.engine import Element, Reader, Replayed
from distlab.data.plan.memory import own
from distlab.data.plan.nest import leaves, map_nest, up_to
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Node, Opener, Reading
from distlab.data.plan.spec import TensorSpec, checked_dtype, spec_of
from distlab.errors import (
    InvalidArgumentError,
    ValueShapeError,
)
from distlab.text.shown import shown
from distlab.values.plain_arrays import unshared


@dataclass(frozen=True, eq=False)
class Component:
    """The signature of one component; a shape of None allows any."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, eq=False)
class Generator(Node):
    """Calls `function(*args)` for each pass and yields its values, as the signature has them."""

    function: Callable[..., Iterable[Any]]
    args: tuple[Any, ...]
    signature: Any

    @functools.cached_property
    def spec(self) -> Any:
        """The signature's specs, or without shapes those of the first element."""
        if self.exact:
            return map_nest(lambda c: TensorSpec(c.shape, c.dtype), self.signature)
        first = next(self._elements(), None)
        if first is None:
            raise InvalidArgumentError(
                "The generator yields no elements, so their specs are unknown. Pass "
                "output_signature to from_generator."
            )
        return map_nest(lambda s: TensorSpec((None,) * s.rank, s.dtype), spec_of(first.value))

    @property
    def exact(self) -> bool:
        """True if the signature has the shapes."""
        signature = self.signature
        return signature is not None and all(c.shape is not None for c in leaves(signature))

    @property
    def cardinality(self) -> int:
        """Unknown."""
        return UNKNOWN_CARDINALITY

    @property
    def rereadable(self) -> bool:
        """No: another call may yield others, or wait for them."""
        return False

    def read(self, reading: Reading, open_input: Opener) -> Reader:  # noqa: ARG002
        """Opens the values of a new call."""
        return Replayed(self._elements)

    def _elements(self) -> Iterator[Element]:
        # A generator that shuffles its arguments in place must not do so for the next pass.
        for value in self.function(*map_nest(unshared, self.args)):
            yield Element(self._element(value), None)

    def _element(self, value: Any) -> Any:
        return to_own(value) if self.signature is None else self._converted(value)

    def _converted(self, value: Any) -> Any:
        parts = up_to("An element of the generator", self.signature, value)
        return map_nest(lambda promised: own(_component(promised, next(parts))), self.signature)


def signature_of(output_types: Any, output_shapes: Any, output_signature: Any) -> Any:
    """Returns the nest of `Component` that from_generator's arguments describe."""
    if output_signature is not None:
        if output_types is not None or output_shapes is not None:
            raise InvalidArgumentError(
                "from_generator accepts output_signature, or output_types with output_shapes, but "
                "not both. Leave one out."
            )
        return map_nest(
            lambda spec: Component(_dtype(spec.dtype), _shape(spec.shape)), output_signature
        )
    if output_types is None:
        if output_shapes is not None:
            raise InvalidArgumentError(
                "from_generator accepts output_shapes only with output_types"
            )
        return None
    if output_shapes is None:
        return map_nest(lambda dtype: Component(_dtype(dtype), None), output_types)
    shapes = up_to("output_shapes of from_generator", output_types, output_shapes)
    return map_nest(lambda dtype: Component(_dtype(dtype), _shape(next(shapes))), output_types)


def _shape(shape: Any) -> tuple[int | None, ...] | None:
    """Returns the dimensions of a shape; None if even their number is unknown."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return tuple(None if size is None else int(size) for size in shape)


def _dtype(dtype: Any) -> np.dtype[Any]:
    """Returns NumPy's dtype; strings of any kind are `bytes` in arrays of objects."""
    found = checked_dtype(getattr(dtype, "as_numpy_dtype", dtype))
    return np.dtype(object) if found.kind in "OUS" else found


def _component(promised: Component, value: Any) -> Any:
    try:
        if promised.dtype == object:
            array = leaf_to_numpy(value)
        else:
            array = _as_promised(np.asarray(value), promised.dtype)[()]
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueShapeError(
            f"The generator must yield {promised.dtype} here, got {shown(value)}: {error}. Convert "
            "it in the generator, or promise another dtype."
        ) from error
    shape = np.shape(array)
    if promised.shape is not None and not _fits(shape, promised.shape):
        raise ValueShapeError(
            f"The generator must yield shape {promised.shape} here, got {shape}. "
            "Use None in output_shapes for dimensions that vary."
        )
    return array


def _as_promised(array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Refuses numbers that no integer of the dtype equals, which astype would wrap or cut off."""
    with np.errstate(invalid="ignore"):  # nan, say, which is refused
        converted = array.astype(dtype, copy=False)
    if dtype.kind in "iu" and array.dtype.kind in "iufV" and not np.can_cast(array.dtype, dtype):
        changed = converted != array
        if changed.any():
            raise OverflowError(f"{array[changed].flat[0]} does not fit {dtype}")
    return converted


def _fits(shape: tuple[int, ...], promised: tuple[int | None, ...]) -> bool:
    return len(shape) == len(promised) and all(
        size is None or size == got for size, got in zip(promised, shape, strict=True)
    )
