"""The variables and models that a function names, as they were when its programs were found.

A notebook's cell makes them again when it is run again. The function is another cell's, and stays
the same object: without a look at its names it would go on with the variables of before, until
Python collects them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from types import CellType, FunctionType, ModuleType
from typing import Any, Final, final

from distlab.step.code_reads import contents_of, named_in, users_function
from distlab.step.functions.statics import is_opaque
from distlab.values.attributes import attribute
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable

_MOST_FUNCTIONS: Final = 32
_MOST_ELEMENTS: Final = 64


@final
class NamedVariables:
    """The globals and closures that hold variables or models, of a function and those it calls.

    Args:
      fn: The function.
    """

    __slots__ = ("_cells", "_globals")

    def __init__(self, fn: FunctionType) -> None:
        self._globals: list[tuple[dict[str, Any], str, Callable[[Any], bool]]] = []
        self._cells: list[tuple[CellType, Callable[[Any], bool]]] = []
        waiting, seen = [fn], {id(fn)}
        while waiting and len(seen) < _MOST_FUNCTIONS:
            one = waiting.pop()
            for value in self._note(one):
                called = users_function(value)
                if called is not None and id(called) not in seen:
                    seen.add(id(called))
                    waiting.append(called)

    def _note(self, fn: FunctionType) -> Iterator[Any]:
        """Notes where a function finds variables; yields all that it names."""
        for name in named_in(fn.__code__).globals:
            value = fn.__globals__.get(name)
            if _may_hold_variables(value):
                self._globals.append((fn.__globals__, name, _is(value)))
            yield value
        for cell in fn.__closure__ or ():
            value = contents_of(cell)
            if _may_hold_variables(value):
                self._cells.append((cell, _is(value)))
            yield value

    def were_made_again(self) -> bool:
        """Returns whether another object is in the place of one that holds variables."""
        for names, name, is_same in self._globals:
            if not is_same(names.get(name)):
                return True
        return not all(is_same(contents_of(cell)) for cell, is_same in self._cells)


def _may_hold_variables(value: Any) -> bool:
    """Returns whether a value is a variable, a container of some, or an object such as a model."""
    if isinstance(value, Variable | ShardedVariable):
        return True
    if isinstance(value, dict | list | tuple):
        elements = value.values() if isinstance(value, dict) else value
        first = islice(list(elements), _MOST_ELEMENTS)
        return any(isinstance(one, Variable | ShardedVariable) for one in first)
    if isinstance(value, type | ModuleType) or users_function(value) is not None:
        return False
    return type(attribute(value, "__dict__")) is dict and not is_opaque(type(value))


def _is(value: Any) -> Callable[[Any], bool]:
    """Returns a function that tells whether an object is a value, which it does not hold."""
    try:
        reference = weakref.ref(value)
    except TypeError:  # a dict, say; another one may be made in its place, when it is gone
        number = id(value)
        return lambda other: id(other) == number
    return lambda other: reference() is other
