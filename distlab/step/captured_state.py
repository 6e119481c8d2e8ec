"""Flax NNX objects that a function uses from outside: models, metrics, random streams.

Compiled, the function holds the arrays that they had. So a program is outdated once they have
others, and is compiled again. The function can't change them: while it is traced Flax refuses,
and as ordinary Python one replica after another would.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, Final, final

from distlab.errors import ArgumentTypeError, RecompilationWarning
from distlab.step.function_identity import referenced
from distlab.step.state_holders import library_of
from distlab.values.checks import function_name
from distlab.values.user_code import warn

_DEEPEST: Final = 4
_CHANGED_TOO_OFTEN: Final = 3


def captured_state(fn: Callable[..., Any]) -> CapturedState | None:
    """Returns the NNX objects that a function uses from outside; None if it uses none.

    Args:
      fn: The function.
    """
    if "flax.nnx" not in sys.modules:
        return None
    found = list(_captured(fn, _DEEPEST, set()))
    return CapturedState(function_name(fn), found) if found else None


@final
class CapturedState:
    """The NNX objects that a function uses from outside, and the arrays that they have now.

    Args:
      function: The function's name.
      found: The objects, with the names by which the function knows them.
    """

    def __init__(self, function: str, found: list[tuple[str, Any]]) -> None:
        self._function = function
        self._names = [f"{name}, a flax.nnx {type(thing).__name__}" for name, thing in found]
        self._arrays = [
            (variable, variable.get_raw_value())
            for _, thing in found
            for variable in _variables(thing)
        ]
        self._changes = 0

    def changed(self) -> bool:
        """Returns whether one of them has other arrays now."""
        return any(variable.get_raw_value() is not array for variable, array in self._arrays)

    def explain(self, error: Exception) -> None:
        """Adds to an error of the function what it must not do with them."""
        error.add_note(f"{self._text()} Where the function changes it, {self._way_out()}")

    def require_unchanged(self) -> None:
        """Checks that running the function did not change them; restores them if it did.

        Raises:
          ArgumentTypeError: It did.
        """
        if not self.changed():
            return
        for variable, array in self._arrays:
            variable.set_raw_value(array)
        raise ArgumentTypeError(
            f"{self._text()} Each replica changed it, one after another. Instead, {self._way_out()}"
        )

    def follow(self, outdated: CapturedState) -> None:
        """Counts how often they have changed since the function was first compiled.

        Args:
          outdated: What the function held before.

        Warns:
          RecompilationWarning: It is the third time.
        """
        self._changes = outdated._changes + 1
        if self._changes == _CHANGED_TOO_OFTEN:
            warn(
                f"{self._text()} Its arrays have changed {self._changes} times, and each time the "
                f"function was compiled again. Instead, {self._way_out()}",
                RecompilationWarning,
            )

    def _text(self) -> str:
        return f"{self._function} uses {'; '.join(self._names)} from outside."

    def _way_out(self) -> str:
        return "pass it in args=(...), where run updates it in place."


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
