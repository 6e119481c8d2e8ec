"""as_dataset: anything that can be iterated, as a Dataset."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import grain

from distlab.data._convert import to_numpy
from distlab.data._engine import Element, Mapped, Stream
from distlab.data._nest import map_nest
from distlab.data._plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
)
from distlab.data._replay import ReplayStream
from distlab.data._spec import TensorSpec, spec_of
from distlab.errors import InvalidArgumentError, OneShotError, StructureError


@dataclass(frozen=True, eq=False)
class Adapted(Node):
    """The elements of an iterable that is not distlab's, converted to NumPy."""

    iterable: Iterable[Any]

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns itself: it has no inputs."""
        assert not inputs
        return self

    @functools.cached_property
    def spec(self) -> Any:
        """What the first element is like; its first dimensions are taken to vary.

        Raises:
          InvalidArgumentError: when there is no element.
        """
        first = next(iter(self.read(Reading(peek=True), _no_input)), None)
        if first is None:
            raise InvalidArgumentError(
                f"this {type(self.iterable).__name__} has no elements, "
                "so what they are like can't be told"
            )
        return map_nest(_varying, spec_of(first.value))

    @functools.cached_property
    def cardinality(self) -> int:
        """What `len` says, when it says something."""
        try:
            size = len(self.iterable)  # type: ignore[arg-type]
        except (TypeError, NotImplementedError):
            return UNKNOWN_CARDINALITY
        return INFINITE_CARDINALITY if size >= sys.maxsize else size

    def read(self, reading: Reading, open_input: Opener) -> Stream:  # noqa: ARG002
        """Opens what iterating it gives."""
        if isinstance(self.iterable, grain.IterDataset):
            return Mapped(self.iterable, _wrap)  # keeps Grain's own positions
        return ReplayStream(lambda: map(_element, iter(self.iterable)))


@dataclass(frozen=True, eq=False)
class OneShot(Adapted):
    """An iterator, which can be read once. What was only looked at is kept for that."""

    _seen: list[Any] = field(default_factory=list, init=False)
    _readings: list[Reading] = field(default_factory=list, init=False)

    @property
    def cardinality(self) -> int:
        """Not known."""
        return UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Stream:  # noqa: ARG002
        """Opens what is left to read.

        Raises:
          OneShotError: while iterating, when it was read before.
        """
        return ReplayStream(functools.partial(self._start, reading))

    def _start(self, reading: Reading) -> Iterator[Any]:
        if self._readings:
            raise OneShotError(
                f"this {type(self.iterable).__name__} can be read once and has been. Give a "
                "function that makes one to Dataset.from_generator, or something iter() can be "
                "called on again."
            )
        if reading.peek:
            return self._look()
        self._readings.append(reading)
        return self._consume()

    def _look(self) -> Iterator[Any]:
        number = 0
        while number < len(self._seen) or self._see_one():
            yield self._seen[number]
            number += 1

    def _see_one(self) -> bool:
        for value in self.iterable:
            self._seen.append(_element(value))
            return True
        return False

    def _consume(self) -> Iterator[Any]:
        while self._seen:
            yield self._seen.pop(0)
        yield from map(_element, self.iterable)


def adapted(source: Any) -> Node:
    """Returns the plan that reads something iterable.

    Raises:
      StructureError: when it is an array or a nest of arrays, of which it can't
        be told whether their rows are meant, or can't be iterated.
    """
    if isinstance(source, tuple | Mapping) or _is_array(source):
        raise StructureError(
            f"a dataset must be something to iterate over, got a {type(source).__name__} of data. "
            "Use distlab.data.Dataset.from_tensor_slices for a dataset of its rows."
        )
    if isinstance(source, grain.IterDataset):
        return Adapted(source)
    try:
        iterator = iter(source)
    except TypeError:
        raise StructureError(
            f"a dataset must be something to iterate over, got {type(source).__name__}. "
            "Use distlab.data.Dataset, a list of batches, a data loader or a generator."
        ) from None
    return OneShot(source) if iterator is source else Adapted(source)


def _is_array(source: Any) -> bool:
    return isinstance(source, str | bytes) or (
        hasattr(source, "__array__") and not isinstance(source, list)
    )


def _element(value: Any) -> Any:
    """Converts an element; a list of arrays, as data loaders give, is a tuple of components."""
    if isinstance(value, list) and value and all(_is_component(part) for part in value):
        value = tuple(_element(part) for part in value)
    return to_numpy(value)


def _is_component(part: Any) -> bool:
    is_array = hasattr(part, "__array__") and getattr(part, "ndim", 0) > 0
    return is_array or isinstance(part, tuple | Mapping)


def _wrap(value: Any) -> Element:
    return Element(_element(value), None)


def _varying(spec: TensorSpec) -> TensorSpec:
    return TensorSpec((None, *spec.shape[1:]), spec.dtype) if spec.rank else spec


def _no_input(node: Node, reading: Reading) -> Stream:
    raise AssertionError(f"{node} is no input, in {reading}")
