"""sample_from_datasets and choose_from_datasets: each element from one of several datasets."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Mapped, Reader, State
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    Opener,
    Reading,
    Several,
)
from distlab.data.plan.seeded import Draws, Seeded
from distlab.data.plan.spec import common_spec
from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown


@dataclass(frozen=True, eq=False)
class Directed(Several):
    """Elements of `parts`, in an order that a subclass decides.

    `stop_on_empty` ends them where a part that is chosen has ended; else that choice is skipped.
    """

    stop_on_empty: bool

    @functools.cached_property
    def spec(self) -> Any:
        """The most specific specs that all parts satisfy."""
        return functools.reduce(common_spec, (part.spec for part in self.parts))

    @property
    def cardinality(self) -> int:
        """Infinite if choices never come to an end, else unknown."""
        endless = [part.cardinality == INFINITE_CARDINALITY for part in self.parts]
        ends = not all(endless) if self.stop_on_empty else not any(endless)
        return UNKNOWN_CARDINALITY if ends else INFINITE_CARDINALITY

    def _directed(self, reading: Reading, open_input: Opener, choices: Reader) -> Reader:
        parts = [open_input(part, reading) for part in self.parts]
        return _DirectedReader(self, parts, choices)


@dataclass(frozen=True, eq=False)
class Sampled(Directed, Seeded):
    """Chooses parts at random, each with the probability of its weight."""

    weights: tuple[float, ...]

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the sampled elements."""
        bounds = np.cumsum(self.weights)
        last = int(np.flatnonzero(self.weights)[-1])

        def draw(chunk: int, count: int) -> Any:
            points = self.generator(reading, chunk).random(count) * bounds[-1]
            # Rounding may put a point on the last bound.
            return np.minimum(np.searchsorted(bounds, points, side="right"), last)

        return self._directed(reading, open_input, Draws(draw))


@dataclass(frozen=True, eq=False)
class Chosen(Directed):
    """Chooses the parts whose numbers are the elements of `choice`."""

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
        if self.choice.cardinality == INFINITE_CARDINALITY:
            return super().cardinality
        return 0 if self.choice.cardinality == 0 else UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the chosen elements."""
        choices = Mapped(open_input(self.choice, reading), self._number)
        return self._directed(reading, open_input, choices)

    def _number(self, element: Element) -> Element:
        array = np.asarray(element.value)
        if array.ndim or array.dtype.kind not in "iu" or not 0 <= array < len(self.parts):
            raise InvalidArgumentError(
                "Elements of choice_dataset must be integers from 0 to "
                f"{len(self.parts) - 1}, the numbers of the datasets, got {shown(element.value)}"
            )
        return Element(int(array), None)


def checked_weights(weights: Any, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the weights of `count` datasets."""
    try:
        array = np.asarray(weights, np.float64)
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        array = np.empty((0, 0))
    fits = array.shape == (count,) and np.isfinite(array).all() and (array >= 0).all()
    if not fits or not array.any():
        raise InvalidArgumentError(
            f"weights of sample_from_datasets must be {count} numbers, none negative and one "
            f"positive, got {shown(weights)}. Give one for each dataset, or leave weights out."
        )
    return array


class _DirectedReader(Reader):
    FIELDS = ("_open",)

    def __init__(self, node: Directed, parts: list[Reader], choices: Reader) -> None:
        super().__init__(*parts, choices)
        self._choices, self._stop_on_empty = choices, node.stop_on_empty
        self._open = [True] * len(parts)

    def __next__(self) -> Element:
        while any(self._open):
            number: int = next(self._choices).value
            if not self._open[number]:
                continue
            element = next(self._parents[number], None)
            if element is not None:
                return element._replace(indices=None)
            self._open[number] = False
            if self._stop_on_empty:
                self._open = [False] * len(self._open)
        raise StopIteration

    def get_state(self) -> State:
        return {**super().get_state(), "open": list(self._open)}

    def set_state(self, state: State) -> None:
        super().set_state({**state, "open": list(state["open"])})
