"""group_by_window: elements of one key collected, and reduced a window at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Stream
from distlab.data.plan.listed import Listed
from distlab.data.plan.nest import call_with
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
    Unary,
    open_plan,
)
from distlab.data.plan.replay import ReplayedElements, reading_of
from distlab.data.plan.spec import zeros
from distlab.errors import InvalidArgumentError, StructureError
from distlab.text.shown import shown


@dataclass(frozen=True, eq=False)
class GroupByWindow(Unary):
    """The elements of the datasets that `reduce` makes of windows of elements with one key.

    Attributes:
      key: A function from an element's value to an integer.
      reduce: A function of a key and the dataset of a window; returns a plan.
      window_size: A function from a key to the number of elements in its windows.
      make_dataset: Makes the dataset of a plan.
    """

    key: Callable[..., Any]
    reduce: Callable[[Any, Any], Node]
    window_size: Callable[[Any], Any]
    make_dataset: Callable[[Node], Any]

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of the dataset for the input's first element, or for zeros."""
        return self.example.spec

    @functools.cached_property
    def example(self) -> Node:
        """The plan for a window of the input's first element, or of zeros without one."""
        first = next(iter(open_plan(self.input, Reading(peek=True))), None)
        element = Element(zeros(self.input.spec), None) if first is None else first
        return self._reduced(self._key_of(element), [element])

    @property
    def cardinality(self) -> int:
        """Infinite if the input's is, else unknown."""
        endless = self.input.cardinality == INFINITE_CARDINALITY
        return INFINITE_CARDINALITY if endless else UNKNOWN_CARDINALITY

    @property
    def extent(self) -> int | None:
        """None: positions of different windows would be ambiguous."""
        return None

    @property
    def exact(self) -> bool:
        """Whether the specs of the dataset for the first element are."""
        return self.example.exact

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the elements of all datasets."""
        stream = open_input(self.input, reading)
        return ReplayedElements(lambda: self._elements(stream, reading))

    def _elements(self, stream: Stream, reading: Reading) -> Iterator[Element]:
        for number, (key, window) in enumerate(self._windows(stream)):
            with reading_of(open_plan(self._reduced(key, window), reading.within(number))) as part:
                yield from part

    def _windows(self, stream: Stream) -> Iterator[tuple[np.int64, list[Element]]]:
        groups: dict[np.int64, tuple[int, list[Element]]] = {}
        with reading_of(stream) as reader:
            for element in reader:
                key = self._key_of(element)
                if key not in groups:
                    groups[key] = (self._size_of(key), [])
                size, window = groups[key]
                window.append(element)
                if len(window) == size:
                    del groups[key]
                    yield key, window
        for key in sorted(groups):
            yield key, groups[key][1]

    def _key_of(self, element: Element) -> np.int64:
        return _integer("key_func", call_with(self.key, element.value))

    def _size_of(self, key: np.int64) -> int:
        size = int(_integer("window_size_func", self.window_size(key)))
        if size < 1:
            raise InvalidArgumentError(
                f"The window size of group_by_window must be at least 1, got {size} for key {key}"
            )
        return size

    def _reduced(self, key: np.int64, window: list[Element]) -> Node:
        return self.reduce(key, self.make_dataset(Listed(window, self.input)))


def _integer(name: str, value: Any) -> np.int64:
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "iub":
        raise StructureError(
            f"{name} of group_by_window must return one integer, got {shown(value)}. Convert it "
            "with np.int64."
        )
    return np.int64(array.item())
