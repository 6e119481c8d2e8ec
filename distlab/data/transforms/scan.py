"""scan and reduce: a state that is carried from element to element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from distlab.data.plan.convert import to_numpy, to_own
from distlab.data.plan.engine import Element, Stream
from distlab.data.plan.first_result import spec_of_results
from distlab.data.plan.nest import describe, leaves, map_nest
from distlab.data.plan.plan import Opener, Reading, Unary
from distlab.data.plan.replay import ReplayedElements, reading_of
from distlab.data.plan.spec import spec_of
from distlab.errors import InvalidArgumentError, StructureError, ValueShapeError
from distlab.values.plain_arrays import unshared

_PYTHON = {bool, int, float, list}


@dataclass(frozen=True, eq=False)
class Scan(Unary):
    """The outputs of a function of a state and each element, which returns the next state."""

    start: Start
    function: Callable[[Any, Any], Any]

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of the first output."""
        state = State(self.start, "scan")
        return spec_of_results(self.input, lambda value: spec_of(self._step(state, value)))

    @property
    def exact(self) -> bool:
        """No: other elements may have other shapes."""
        return False

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the outputs."""
        stream = open_input(self.input, reading)
        return ReplayedElements(lambda: self._outputs(stream))

    def _outputs(self, stream: Stream) -> Iterator[Element]:
        state = State(self.start, "scan")
        with reading_of(stream) as reader:
            for element in reader:
                yield Element(self._step(state, element.value), element.indices)

    def _step(self, state: State, value: Any) -> Any:
        result = call_with_state(self.function, state.value, value)
        if not isinstance(result, tuple) or len(result) != 2:
            raise StructureError(
                "scan_func of scan must return a pair (new_state, output), got "
                f"{type(result).__name__}."
            )
        state.update(result[0])
        return to_own(result[1])


class Start(NamedTuple):
    """What a state begins with, as it was when it was passed.

    Attributes:
      values: The nest of initial values, read-only.
      weak: For each, whether it is a Python number, which has no dtype of its own: it takes that
        of the first new state.
    """

    values: Any
    weak: Any

    @classmethod
    def of(cls, initial: Any) -> Self:
        """Takes what a user passes."""
        return cls(to_own(initial), map_nest(lambda leaf: type(leaf) in _PYTHON, initial))


class State:
    """A nest of NumPy values that keeps its structure and its dtypes.

    Args:
      start: What it begins with; a function may write to a state.
      verb: The verb, for errors.
    """

    def __init__(self, start: Start, verb: str) -> None:
        self.value = map_nest(unshared, start.values)
        self._verb = verb
        self._weak = start.weak

    def update(self, new: Any) -> None:
        """Goes to the next state."""
        value = to_numpy(new)
        if describe(value) != describe(self.value):
            raise StructureError(
                f"The state of {self._verb} must keep its structure, {describe(self.value)}, got "
                f"{describe(value)}."
            )
        for weak, old, now in zip(*map(leaves, (self._weak, self.value, value)), strict=True):
            if not weak and _dtype(old) != _dtype(now):
                raise ValueShapeError(
                    f"The state of {self._verb} must keep its dtypes, got {_dtype(now)} after "
                    f"{_dtype(old)}. Convert it with astype, or begin with a value of that dtype."
                )
        self._weak = map_nest(lambda _: False, self._weak)
        self.value = value


def fold(elements: Iterable[Element], initial_state: Any, function: Callable[..., Any]) -> Any:
    """Returns the last state: `function(state, element)` is the next one."""
    state = State(Start.of(initial_state), "reduce")
    for element in elements:
        state.update(call_with_state(function, state.value, element.value))
    return state.value


def call_with_state(function: Callable[[Any, Any], Any], state: Any, value: Any) -> Any:
    """Calls a function of a state and an element."""
    try:
        return function(state, value)
    except StopIteration as error:
        raise InvalidArgumentError(
            "A function of a state must not raise StopIteration, which would end the dataset "
            "silently. Use take or take_while to end it."
        ) from error


def _dtype(leaf: Any) -> np.dtype[Any]:
    return np.dtype(object) if isinstance(leaf, bytes) else leaf.dtype
