"""Functions of each element: map, filter, take_while, enumerate and reduce; and zip."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.convert import to_numpy, to_own
from distlab.data.plan.engine import (
    Element,
    Filtered,
    Mapped,
    Reader,
    Zipped,
)
from distlab.data.plan.nest import call_with, map_nest, truth
from distlab.data.plan.parallel import ParallelMapped
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Opener,
    Reading,
    Several,
    Unary,
    spec_of_results,
)
from distlab.data.plan.spec import TensorSpec, spec_of
from distlab.values.plain_arrays import unshared


@dataclass(frozen=True, eq=False)
class Map(Unary):
    """Applies `function` to each element's value, in threads: -1 chooses, None means none."""

    function: Callable[..., Any]
    threads: int | None

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of the function's first result."""
        return spec_of_results(self.input, lambda value: spec_of(to_numpy(self._returned(value))))

    @property
    def exact(self) -> bool:
        """No: other elements may have other shapes."""
        return False

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the results."""
        reader = open_input(self.input, reading)
        if self.threads is None:
            return Mapped(reader, self._apply)
        return ParallelMapped(reader, self._apply, self.threads)

    def _apply(self, element: Element) -> Element:
        return Element(to_own(self._returned(element.value)), element.indices)

    def _returned(self, value: Any) -> Any:
        """Returns the function's result; a list, such as `decode_csv` returns, is a tuple."""
        result = call_with(self.function, value)
        return tuple(result) if isinstance(result, list) else result


@dataclass(frozen=True, eq=False)
class Filter(Unary):
    """Keeps the elements whose value `predicate` accepts."""

    VERB = "filter"
    predicate: Callable[..., Any]

    @property
    def cardinality(self) -> int:
        """Unknown, because the predicate decides."""
        return UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the accepted elements."""
        return Filtered(open_input(self.input, reading), self._accepts)

    def _accepts(self, element: Element) -> bool:
        return truth(self.VERB, self.predicate, element.value)


@dataclass(frozen=True, eq=False)
class TakeWhile(Filter):
    """The elements before the first one that `predicate` refuses."""

    VERB = "take_while"

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the accepted elements."""
        return _TakeWhileReader(open_input(self.input, reading), self._accepts)


class _TakeWhileReader(Reader):
    FIELDS = ("_ended",)

    def __init__(self, parent: Reader, accepts: Callable[[Element], bool]) -> None:
        super().__init__(parent)
        self._accepts = accepts
        self._ended = False

    def __next__(self) -> Element:
        if not self._ended:
            element = next(self._parent)
            if self._accepts(element):
                return element
            self._ended = True
        raise StopIteration


@dataclass(frozen=True, eq=False)
class Enumerate(Unary):
    """Pairs `(number, element)`, with int64 numbers from `start` on."""

    start: int

    @property
    def spec(self) -> Any:
        """A pair of an int64 scalar's spec and the input's."""
        return (TensorSpec((), np.dtype(np.int64)), self.input.spec)

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the pairs."""
        return _Enumerated(open_input(self.input, reading), self.start)


class _Enumerated(Reader):
    FIELDS = ("_number",)

    def __init__(self, parent: Reader, start: int) -> None:
        super().__init__(parent)
        self._number = start

    def __next__(self) -> Element:
        element = next(self._parent)
        self._number += 1
        return Element((np.int64(self._number - 1), element.value), element.indices)


@dataclass(frozen=True, eq=False)
class Zip(Several):
    """One element of each part at a time; `structure` has the number of a part at each leaf."""

    structure: Any

    @functools.cached_property
    def spec(self) -> Any:
        """The structure, with each part's specs at its leaf."""
        return map_nest(lambda part: self.parts[part].spec, self.structure)

    @property
    def cardinality(self) -> int:
        """The shortest part's."""
        sizes = [part.cardinality for part in self.parts]
        if UNKNOWN_CARDINALITY in sizes:
            return UNKNOWN_CARDINALITY
        return min((size for size in sizes if size >= 0), default=INFINITE_CARDINALITY)

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the parts side by side."""
        return Zipped([open_input(part, reading) for part in self.parts], self._combine)

    def _combine(self, elements: tuple[Element, ...]) -> Element:
        value = map_nest(lambda part: elements[part].value, self.structure)
        first = elements[0].indices
        agree = first is not None and all(
            other.indices is not None and np.array_equal(first, other.indices)
            for other in elements[1:]
        )
        return Element(value, first if agree else None)


def fold(elements: Iterable[Element], initial_state: Any, function: Callable[..., Any]) -> Any:
    """Returns the last state: `function(state, element)` is the next one."""
    state = map_nest(unshared, to_own(initial_state))  # a function may write to a state
    for element in elements:
        state = to_numpy(function(state, element.value))
    return state
