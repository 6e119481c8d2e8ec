"""Random generators of NumPy and Python from which a function draws while it is compiled.

The function's Python runs then, and never again: each step has the numbers of the first one, and
each replica those of the others.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from distlab.errors import DrawnOnceWarning
from distlab.step.code_flow import Path
from distlab.step.code_reads import member_of, named_in, users_function
from distlab.step.functions.identity import referenced
from distlab.step.object_attributes import MISSING, own_attribute
from distlab.step.used_up import RANDOM
from distlab.user_code import warn
from distlab.values.attributes import attribute
from distlab.values.checks import function_name

_MOST_FUNCTIONS: Final = 64
_OF_STEPS: Final = (
    "compiled: every later step has the same numbers, on all replicas. Pass what was drawn "
    "outside, or draw from a key: run(fn, args=(jax.random.fold_in(key, step),)). Or run the "
    "function as ordinary Python: distlab.run_functions_eagerly(True)."
)


class Drawing:
    """Tells of random generators from which a function draws while it is traced.

    Args:
      fn: The function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._function = function_name(fn)
        self._generators = _generators(fn)
        self._drawn: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes from which generators the block, which traces the function, draws."""
        before = [_state(one) for one in self._generators.values()]
        try:
            yield
        finally:
            after = (_state(one) for one in self._generators.values())
            pairs = zip(self._generators, before, after, strict=True)
            self._drawn = [name for name, old, new in pairs if old != new]

    def tell(self, so: str = _OF_STEPS) -> None:
        """Tells of the generators that the last block has drawn from."""
        if self._drawn:
            drawn = f"{self._function} draws from {' and '.join(self._drawn)}"
            warn(f"{drawn} while it is {so}", DrawnOnceWarning)


def _generators(fn: Any) -> dict[str, Any]:
    """Returns, by name, the generators that a function refers to, and those it calls, too."""
    found: dict[int, tuple[str, Any]] = {}
    waiting, seen = [fn], {id(fn)}
    while waiting and len(seen) < _MOST_FUNCTIONS:
        for name, value in _referenced(waiting.pop()):
            generator = _generator(value)
            if generator is not None:
                found.setdefault(id(generator), (name, generator))
            elif _is_users(value) and id(value) not in seen:
                seen.add(id(value))
                waiting.append(value)
    return dict(found.values())


def _referenced(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yields what a function refers to, and what it reads of that, with their names."""
    if isinstance(fn, functools.partial):
        yield from ((f"argument {n}", value) for n, value in enumerate(fn.args))
        yield from fn.keywords.items()
        yield "function", fn.func
        return
    if not isinstance(fn, FunctionType | MethodType):
        fn = attribute(fn, "__wrapped__", fn)  # of jax.jit
    kind: Any = type(fn)
    called = member_of(kind, "__call__")  # of an object that is called
    fn = fn if called is None else MethodType(called, fn)
    code = attribute(fn, "__code__")
    if not isinstance(code, CodeType):
        return
    paths = named_in(code).paths
    for name, value in referenced(fn):
        yield name, value
        is_object = name == "self" and isinstance(fn, MethodType)
        for path in paths.get(code.co_varnames[0] if is_object else name, ()):
            yield from _along(name, value, path)


def _is_users(value: Any) -> bool:
    """Returns whether a value is a function or method of the user's, or calls one."""
    while isinstance(value, MethodType | functools.partial):
        value = value.__func__ if isinstance(value, MethodType) else value.func
    return users_function(value) is not None


def _along(name: str, value: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Yields what lies on a path from a value: attributes of modules and objects, and methods."""
    for step in path:
        owner = value
        if isinstance(owner, ModuleType | type):
            value = owner.__dict__.get(step, MISSING)
        else:
            kind: Any = type(owner)
            value, method = own_attribute(owner, step), member_of(kind, step)
            if value is MISSING and method is not None:
                value = MethodType(method, owner)
        if value is MISSING:
            return
        name = f"{name}.{step}"
        yield name, value


def _generator(value: Any) -> Any:
    """Returns the generator that a value is, or of which it is a method; None for others."""
    if isinstance(value, BuiltinFunctionType | MethodType):
        value = value.__self__
    return value if isinstance(value, RANDOM) else None


def _state(generator: Any) -> str:
    """Returns a generator's state as a text; empty where it has none to tell."""
    if isinstance(generator, np.random.Generator):
        generator = generator.bit_generator
    try:
        if isinstance(generator, random.Random):
            return repr(generator.getstate())
        if isinstance(generator, np.random.RandomState):
            return repr(generator.get_state(legacy=False))
        return repr(generator.state)
    except Exception:  # noqa: BLE001 - one of the system, or of the user's
        return ""
