"""What is computed inside of objects that JAX takes for leaves: iterators, closures, views."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import AsyncIterator, Coroutine, Iterator, MappingView
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final, TypeAlias

import jax
import numpy as np

from distlab.step.functions.statics import COLLECTIONS, is_opaque, parts_of
from distlab.values.distributed import DistributedValues

_MOST_PARTS: Final = 1000
_ATOMS: Final = (
    *(bool, int, float, complex, str, bytes, bytearray, type(None), np.generic, jax.Array),
    *(type, ModuleType, BuiltinFunctionType),
)
_ONCE: Final = (Iterator, AsyncIterator, Coroutine)
_HOLDERS: Final = (*_ONCE, MappingView, slice, functools.partial, CellType, memoryview)
"""Objects of Python's own whose contents have no names."""

_Named: TypeAlias = tuple[str, Any]


def is_gone_through_once(value: Any) -> bool:
    """Returns whether an object gives its parts once: an iterator, a generator or a coroutine."""
    return isinstance(value, _ONCE)


def is_iterated(value: Any) -> bool:
    """Returns whether an object is one that JAX warns of: an iterator, or a view of a dict."""
    return isinstance(value, Iterator | MappingView)


def traced_part(value: Any) -> str | None:
    """Returns what of an object JAX is tracing, such as `its .loss`; None for nothing."""
    seen: set[int] = set()
    waiting: list[_Named] = [("", value)]
    while waiting and len(seen) < _MOST_PARTS:
        path, part = waiting.pop()
        if isinstance(part, jax.core.Tracer):
            return f"its {path}" if path else "what it holds"
        if id(part) in seen or isinstance(part, _ATOMS):
            continue
        seen.add(id(part))
        waiting += [(path + name, inner) for name, inner in _parts(part)]
    return None


def _parts(value: Any) -> list[_Named]:
    """Returns what an object holds, with the names by which it is known."""
    if isinstance(value, np.ndarray):
        return [("", one) for one in value.flat] if value.dtype == object else []
    if isinstance(value, FunctionType):
        return _closure(value)
    if isinstance(value, MethodType):
        return [("", value.__self__), ("", value.__func__)]
    running = _running(value)
    if running is not None:
        return list(running.items())
    if isinstance(value, _HOLDERS):
        return [("", part) for part in gc.get_referents(value)]
    known = isinstance(value, (*COLLECTIONS, DistributedValues))
    return [] if is_opaque(type(value)) and not known else list(parts_of(value))


def _closure(function: FunctionType) -> list[_Named]:
    """Returns what a function holds; globals are the program's, and no part of a result."""
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [*cells, *(("", default) for default in defaults)]


def _running(value: Any) -> dict[str, Any] | None:
    """Returns the variables of a generator or a coroutine; None for other objects."""
    if inspect.isgenerator(value):
        return inspect.getgeneratorlocals(value)
    if inspect.iscoroutine(value):
        return inspect.getcoroutinelocals(value)
    frame = value.ag_frame if inspect.isasyncgen(value) else None
    return None if frame is None else dict(frame.f_locals)
