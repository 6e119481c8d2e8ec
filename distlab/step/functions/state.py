"""Objects of Flax NNX that a function uses from outside: models, metrics, optimizers.

A compiled function holds the arrays that they had. So a program is outdated once they have others,
and is compiled again, as an evaluation after each epoch needs it. They are found among the values
to which the function refers.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, Final, final

from distlab.errors import ArgumentTypeError
from distlab.step.functions.holders import library_of
from distlab.step.functions.identity import referenced
from distlab.values.checks import function_name

_WAY_OUT: Final = "pass it in args=(...), where run updates it in place."
_DEEPEST: Final = 4


def captured_state(fn: Callable[..., Any]) -> CapturedState | None:
    """Returns the NNX objects that a function uses from outside; None if it uses none."""
    if "flax.nnx" not in sys.modules:
        return None
    found = list(_captured(fn, _DEEPEST, set()))
    if not found:
        return None
    names = [f"{name}, a flax.nnx {type(thing).__name__}" for name, thing in found]
    variables = [variable for _, thing in found for variable in _variables(thing)]
    return CapturedState(function_name(fn), names, variables)


@final
class CapturedState:
    """The objects that a function uses from outside, and the arrays that they have now."""

    def __init__(self, function: str, names: list[str], holders: list[Any]) -> None:
        self.names = names
        self._function = function
        self._arrays = [(holder, holder.get_raw_value()) for holder in holders]

    def changed(self) -> bool:
        """Returns whether one of them has other arrays now."""
        return any(holder.get_raw_value() is not array for holder, array in self._arrays)

    def explain(self, error: Exception) -> None:
        """Adds to an error of the function that it must not change them."""
        error.add_note(f"{self._text()} Where the function changes it, {_WAY_OUT}")

    def require_unchanged(self) -> None:
        """Checks that running the function did not change them; restores them if it did."""
        if not self.changed():
            return
        for holder, array in self._arrays:
            holder.set_raw_value(array)
        raise ArgumentTypeError(
            f"{self._text()} Each replica changed it, one after another. Instead, {_WAY_OUT}"
        )

    def _text(self) -> str:
        return f"{self._function} uses {'; '.join(self.names)} from outside."


def _captured(fn: Any, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yields the NNX objects that a function refers to, with their names."""
    if depth == 0 or id(fn) in seen:
        return
    seen.add(id(fn))
    if isinstance(fn, functools.partial):
        named = [(f"argument {n}", value) for n, value in enumerate(fn.args)]
        named += [*fn.keywords.items(), ("function", fn.func)]
    else:
        named = list(referenced(fn))
        if isinstance(fn, MethodType):
            named += getattr(fn.__self__, "__dict__", {}).items()
    for name, value in named:
        if library_of(value) == "flax.nnx":
            if id(value) not in seen:
                seen.add(id(value))
                yield name, value
        elif isinstance(value, FunctionType | MethodType | functools.partial):
            yield from _captured(value, depth - 1, seen)


def _variables(thing: Any) -> Iterator[Any]:
    """Yields the variables of an NNX object."""
    nnx = sys.modules["flax.nnx"]
    if isinstance(thing, nnx.Variable):
        yield thing
        return
    for _, node in nnx.iter_graph(thing):
        if isinstance(node, nnx.Variable):
            yield node
