"""as_dataset: iterables of other libraries as datasets."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from distlab.data.plan.convert import to_own
from distlab.data.plan.engine import Element, Mapped, Reader, Replayed
from distlab.data.plan.nest import map_nest
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
    open_plan,
)
from distlab.data.plan.spec import TensorSpec, spec_of
from distlab.errors import InvalidArgumentError, OneShotError, StructureError


@dataclass(frozen=True, eq=False)
class Adapted(Node):
    """The elements of an iterable, converted to NumPy."""

    iterable: Iterable[Any]

    @functools.cached_property
    def spec(self) -> Any:
        """The spec of the first element, with None for first dimensions."""
        first = next(open_plan(self, Reading(peek=True)), None)
        if first is None:
            raise InvalidArgumentError(
                f"This {type(self.iterable).__name__} has no elements, so their specs are unknown. "
                "Leave it out, or use Dataset.from_generator with an output_signature."
            )
        return map_nest(_varying, spec_of(first.value))

    @property
    def exact(self) -> bool:
        """No: other elements may have other shapes."""
        return False

    @functools.cached_property
    def cardinality(self) -> int:
        """The result of `len`, where the iterable has one."""
        try:
            size = len(self.iterable)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            return UNKNOWN_CARDINALITY
        return INFINITE_CARDINALITY if size >= sys.maxsize else size

    @property
    def rereadable(self) -> bool:
        """True for Grain's: another iteration of others may have another order."""
        return _is_grains(self.iterable)

    def read(self, reading: Reading, open_input: Opener) -> Reader:  # noqa: ARG002
        """Opens the elements of an iteration."""
        if self.rereadable:
            # Its iterators have the methods of a Reader, and positions of their own.
            return Mapped(iter(self.iterable), _wrap)  # type: ignore[arg-type]
        return Replayed(lambda: map(_wrap, iter(self.iterable)))


@dataclass(frozen=True, eq=False)
class OneShot(Adapted):
    """An iterator, which can be read once. Elements read for their spec are kept until then."""

    _left: list[Iterator[Element]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        """Holds the elements that are left, which a first reading takes."""
        self._left.append(map(_wrap, self.iterable))

    @property
    def cardinality(self) -> int:
        """Unknown: some elements may have been taken."""
        return UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Reader:  # noqa: ARG002
        """Opens the elements that are left."""
        return Replayed(functools.partial(self._start, peek=reading.peek))

    def _start(self, *, peek: bool) -> Iterator[Element]:
        if not self._left:
            raise OneShotError(
                f"This {type(self.iterable).__name__} can be read only once, and was read before. "
                "Use Dataset.from_generator with a function that makes one, or an iterable that "
                "supports repeated iter() calls."
            )
        elements = self._left.pop()
        if not peek:
            return elements
        rest, peeked = itertools.tee(elements)
        self._left.append(rest)
        return peeked


def adapted(source: Any) -> Node:
    """Returns the plan that reads an iterable."""
    if isinstance(source, tuple | Mapping) or _is_array(source):
        raise StructureError(
            f"A dataset must be an iterable of batches, got a {type(source).__name__} of data. "
            "Use distlab.data.Dataset.from_tensor_slices for a dataset of its rows."
        )
    try:
        iterator = iter(source)
    except TypeError:
        raise StructureError(
            f"A dataset must be an iterable of batches, got {type(source).__name__}. "
            "Use distlab.data.Dataset, a list of batches, a data loader or a generator."
        ) from None
    return OneShot(source) if iterator is source else Adapted(source)


def _is_array(source: Any) -> bool:
    return isinstance(source, str | bytes) or (
        hasattr(source, "__array__") and not isinstance(source, list)
    )


def _element(value: Any) -> Any:
    """Converts an element; a data loader's list of arrays becomes a tuple of components."""
    if isinstance(value, list) and value and all(_is_component(part) for part in value):
        value = tuple(_element(part) for part in value)
    return to_own(value)


def _is_component(part: Any) -> bool:
    is_array = hasattr(part, "__array__") and getattr(part, "ndim", 0) > 0
    return is_array or isinstance(part, tuple | Mapping)


def _wrap(value: Any) -> Element:
    return Element(_element(value), None)


def _varying(spec: TensorSpec) -> TensorSpec:
    return TensorSpec((None, *spec.shape[1:]), spec.dtype) if spec.rank else spec


def _is_grains(iterable: Any) -> bool:
    """Returns whether it is Grain's `IterDataset`, whose iterators have positions."""
    grain = sys.modules.get("grain")
    return grain is not None and isinstance(iterable, grain.IterDataset)
