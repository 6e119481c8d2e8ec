"""Globals of a replica function that a notebook replaces: functions, and what holds variables.

A function's identity leaves out its globals, as `jax.jit` does. Notebooks live by two exceptions.
IPython's autoreload gives the functions of a module new code, and a cell that runs again makes its
functions and variables again, while the step is another cell's and stays the same object.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from distlab.step.functions.holders import library_of
from distlab.user_code import is_users
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable

_MOST_FUNCTIONS: Final = 32
_MOST_ELEMENTS: Final = 64


class Named(NamedTuple):
    """A global as it was when the programs of a function were found."""

    scope: dict[str, Any]  # the globals of the function that names it
    name: str
    value: Any
    code: CodeType | None  # None for other objects than functions
    defaults: Any


def is_as_it_was(one: Named) -> bool:
    """Returns whether the name still has the same object, and a function its code."""
    value = one.scope.get(one.name)
    if value is not one.value or one.code is None:
        return value is one.value
    return value.__code__ is one.code and value.__defaults__ is one.defaults


def named(fn: Any) -> list[Named]:
    """Returns the globals that a function names, and the functions that it calls by them."""
    found: list[Named] = []
    waiting, seen = [fn.__func__ if isinstance(fn, MethodType) else fn], {id(fn)}
    while waiting and len(seen) < _MOST_FUNCTIONS:
        one = waiting.pop()
        if not isinstance(one, FunctionType):
            continue
        for name in _names(one.__code__):
            value = one.__globals__.get(name)
            if isinstance(value, FunctionType):
                if id(value) not in seen and is_users(value.__code__.co_filename):
                    seen.add(id(value))
                    waiting.append(value)
                    functions = one.__globals__, name, value, value.__code__, value.__defaults__
                    found.append(Named(*functions))
            elif _holds_variables(value):
                found.append(Named(one.__globals__, name, value, None, None))
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _holds_variables(value: Any) -> bool:
    """Returns whether a value is a variable or a model, or holds a variable."""
    if isinstance(value, Variable | ShardedVariable) or library_of(value) is not None:
        return True
    if isinstance(value, list | tuple):
        held: Any = value
    elif isinstance(value, dict):
        held = value.values()
    else:
        attributes = getattr(value, "__dict__", None)
        held = attributes.values() if type(attributes) is dict else ()
    return any(isinstance(one, Variable | ShardedVariable) for one in islice(held, _MOST_ELEMENTS))
