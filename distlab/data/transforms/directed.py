"""sample_from_datasets and choose_from_datasets: each element from one of several datasets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
)
from distlab.data.plan.seeded import Draws, Seeded
from distlab.data.plan.spec import common_spec, require_one_dtype
from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown


@dataclass(frozen=True, eq=False)
class Directed(Node):
    """Elements of `parts`, in an order that a subclass decides.

    Attributes:
      parts: The nodes that are read.
      stop_on_empty: Whether to end when a part that is chosen has ended; otherwise
        that choice is skipped, and the end is that of the last part.
    """

    VERB: ClassVar[str]
    """The method of `Dataset`, for messages."""

    parts: tuple[Node, ...]
    stop_on_empty: bool

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The parts."""
        return self.parts

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns this operation over other parts."""
        return replace(self, parts=inputs)

    @functools.cached_property
    def spec(self) -> Any:
        """The most specific specs that all parts satisfy."""
        return functools.reduce(common_spec, (part.spec for part in self.parts))

    def require_one_dtype(self) -> None:
        """Checks the parts whose elements are known before they are read."""
        first, *others = [part for part in self.parts if part.exact] or self.parts[:1]
        for other in others:
            require_one_dtype(self.VERB, first.spec, other.spec)

    @property
    def cardinality(self) -> int:
        """Infinite if choices never come to an end, else unknown."""
        endless = [part.cardinality == INFINITE_CARDINALITY for part in self.parts]
        ends = not all(endless) if self.stop_on_empty else not any(endless)
        return UNKNOWN_CARDINALITY if ends else INFINITE_CARDINALITY


@dataclass(frozen=True, eq=False)
class Sampled(Directed, Seeded):
    """Chooses parts at random.

    Attributes:
      weights: The probability of each part.
    """

    VERB = "sample_from_datasets"
    weights: tuple[float, ...]

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the sampled elements."""
        bounds = np.cumsum(self.weights)
        last = int(np.flatnonzero(self.weights)[-1])

        def draw(chunk: int, count: int) -> Any:
            points = self.generator(reading, chunk).random(count) * bounds[-1]
            # Rounding may put a point on the last bound.
            return np.minimum(np.searchsorted(bounds, points, side="right"), last)

        streams = [open_input(part, reading) for part in self.parts]
        return _DirectedStream(self, streams, lambda: _DrawnChoices(Draws(draw)))


@dataclass(frozen=True, eq=False)
class SampledBy(Directed, Seeded):
    """Chooses parts at random, by the weights that a dataset has for each choice.

    Attributes:
      weights: A node whose elements are the weights of the parts.
    """

    VERB = "sample_from_datasets"
    weights: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The parts and the weights."""
        return (*self.parts, self.weights)

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns this operation over other parts and weights."""
        return replace(self, parts=inputs[:-1], weights=inputs[-1])

    @property
    def cardinality(self) -> int:
        """Infinite if choices never come to an end, else unknown."""
        if self.weights.cardinality != INFINITE_CARDINALITY:
            return UNKNOWN_CARDINALITY
        return super().cardinality

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the sampled elements."""
        draws = functools.partial(self._points, reading)
        weights = open_input(self.weights, reading)

        def choices() -> Choices:
            points = Draws(draws)
            return _ReadChoices(iter(weights), lambda value: self._choice(value, points), points)

        streams = [open_input(part, reading) for part in self.parts]
        return _DirectedStream(self, streams, choices)

    def _points(self, reading: Reading, chunk: int, count: int) -> Any:
        return self.generator(reading, chunk).random(count)

    def _choice(self, value: Any, points: Draws) -> int:
        weights = checked_weights(value, len(self.parts))
        bounds = np.cumsum(weights)
        place = int(np.searchsorted(bounds, points.next() * bounds[-1], side="right"))
        return min(place, int(np.flatnonzero(weights)[-1]))


@dataclass(frozen=True, eq=False)
class Chosen(Directed):
    """Chooses the parts that a dataset of their numbers names.

    Attributes:
      choice: A node whose elements are numbers of parts.
    """

    VERB = "choose_from_datasets"
    choice: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The parts and the choices."""
        return (*self.parts, self.choice)

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns this operation over other parts and choices."""
        return replace(self, parts=inputs[:-1], choice=inputs[-1])

    @property
    def cardinality(self) -> int:
        """Infinite if choices never come to an end, else unknown."""
        if self.choice.cardinality != INFINITE_CARDINALITY:
            return 0 if self.choice.cardinality == 0 else UNKNOWN_CARDINALITY
        return super().cardinality

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the chosen elements."""
        choice = open_input(self.choice, reading)
        streams = [open_input(part, reading) for part in self.parts]
        return _DirectedStream(self, streams, lambda: _ReadChoices(iter(choice), self._number))

    def _number(self, value: Any) -> int:
        array = np.asarray(value)
        if array.ndim or array.dtype.kind not in "iu" or not 0 <= array < len(self.parts):
            raise InvalidArgumentError(
                "Elements of choice_dataset must be integers from 0 to "
                f"{len(self.parts) - 1}, the numbers of the datasets, got {shown(value)}"
            )
        return int(array)


def checked_weights(weights: Any, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the weights of `count` datasets."""
    try:
        array = np.asarray(weights, np.float64)
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        array = np.empty((0, 0))
    if array.shape != (count,) or not np.isfinite(array).all() or (array < 0).any():
        raise InvalidArgumentError(
            f"weights of sample_from_datasets must be {count} numbers, one for each dataset and "
            f"none negative, got {shown(weights)}. Give one for each, or leave weights out."
        )
    if not array.any():
        raise InvalidArgumentError(
            "A weight of sample_from_datasets must be positive, got only zeros. Give a dataset "
            "that is to be read a positive weight."
        )
    return array


class Choices(Protocol):
    """An iterator over numbers of parts, with a position."""

    def __next__(self) -> int:
        """Returns the next number."""

    def get_state(self) -> State:
        """Returns the position."""

    def set_state(self, state: State) -> None:
        """Goes to a position."""

    def close(self) -> None:
        """Ends the reading."""


class _DrawnChoices:
    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def __next__(self) -> int:
        return int(self._draws.next())

    def get_state(self) -> State:
        return {"given": self._draws.given}

    def set_state(self, state: State) -> None:
        self._draws.go_to(state["given"])

    def close(self) -> None:
        pass


class _ReadChoices:
    """Numbers that a function makes of a reader's values, some with random points."""

    def __init__(
        self, reader: Reader, number: Callable[[Any], int], points: Draws | None = None
    ) -> None:
        self._reader, self._number, self._points = reader, number, points

    def __next__(self) -> int:
        return self._number(next(self._reader).value)

    def get_state(self) -> State:
        given = 0 if self._points is None else self._points.given
        return {"given": given, "reader": self._reader.get_state()}

    def set_state(self, state: State) -> None:
        self._reader.set_state(state["reader"])
        if self._points is not None:
            self._points.go_to(state["given"])

    def close(self) -> None:
        self._reader.close()


class _DirectedStream(Stream):
    def __init__(
        self, node: Directed, parts: list[Stream], make_choices: Callable[[], Choices]
    ) -> None:
        super().__init__(parts)
        self._node, self._make_choices = node, make_choices

    def __iter__(self) -> Reader:
        readers = [iter(part) for part in self._parents]
        return _DirectedReader(self._node, readers, self._make_choices())


class _DirectedReader(Reader):
    def __init__(self, node: Directed, parts: list[Reader], choices: Choices) -> None:
        super().__init__(parts)
        self._choices, self._stop_on_empty, self._verb = choices, node.stop_on_empty, node.VERB
        self._open = [True] * len(parts)
        self._first: Element | None = None
        self._not_compared = set(range(len(parts)))

    def __next__(self) -> Element:
        while any(self._open):
            number = next(self._choices)
            if not self._open[number]:
                continue
            element: Element | None = next(self._parents[number], None)
            if element is not None:
                if number in self._not_compared:
                    self._compare(number, element)
                return element._replace(indices=None)
            self._open[number] = False
            if self._stop_on_empty:
                self._open = [False] * len(self._open)
        raise StopIteration

    def _compare(self, number: int, element: Element) -> None:
        """Checks the first element of a part: specs may not have been known before."""
        if self._first is None:
            self._first = element
        require_one_dtype(self._verb, self._first.value, element.value)
        self._not_compared.remove(number)

    def get_state(self) -> State:
        return {
            "open": list(self._open),
            "choices": self._choices.get_state(),
            "parts": [part.get_state() for part in self._parents],
        }

    def set_state(self, state: State) -> None:
        self._open = list(state["open"])
        self._choices.set_state(state["choices"])
        for part, position in zip(self._parents, state["parts"], strict=True):
            part.set_state(position)

    def close(self) -> None:
        """Closes the parts and what chooses them."""
        choices = getattr(self, "_choices", None)
        if choices is not None:
            choices.close()
        super().close()
