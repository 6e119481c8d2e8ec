"""What objects hold that neither their equality nor their attributes tell.

An object that is compared as one, by equality or by identity, may hold values that differ while
it is the same: fields that a dataclass leaves out of its equality, the elements of an array of
objects, a module's constants, what a `ctypes` number holds in C.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import islice
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np

from distlab.step.object_attributes import attributes_of
from distlab.user_code import is_users

CONSTANTS: Final[frozenset[type]] = frozenset({bool, int, float, complex, str, bytes, type(None)})
MOST_PARTS: Final = 1_000
"""How many attributes and elements of an argument are looked at."""

OPAQUE_PACKAGES: Final = sys.stdlib_module_names | {"distlab", "jax", "jaxlib", "numpy"}
_COMPARED_WHOLE: Final[tuple[type, ...]] = (*CONSTANTS, type, FunctionType, BuiltinFunctionType)
"""Classes whose equality leaves nothing out that a step could use."""

_ARRAYS: Final = frozenset({"jax", "jaxlib", "numpy"})
"""The packages whose other classes with a hash are such: dtypes, functions like `jax.nn.relu`."""

_DEEPEST: Final = 32
"""The levels that are looked into for whether an object is compared whole."""

_SHARED: Final = ("multiprocessing.sharedctypes", "SynchronizedBase")
"""The class of `multiprocessing.Value` and `Array`, which a program may not have imported."""


def left_out(
    value: Any, *, by_value: bool, is_cache: Callable[[type, str], bool]
) -> Iterator[tuple[str, Any]]:
    """Yields parts of an object that is compared as one, with their names."""
    kind: Any = type(value)
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            elements = enumerate(islice(value.flat, MOST_PARTS))
            yield from ((f"[{n}]", part) for n, part in elements)
    elif isinstance(value, type | ModuleType):
        if _is_in_program(value):
            yield from _constants(vars(value))
    elif by_value and _is_in_program(kind):
        if not _is_compared_whole(value):
            yield from _beside_equality(value, is_cache)
    else:
        yield from _held_in_c(value)


def _beside_equality(
    value: Any, is_cache: Callable[[type, str], bool]
) -> Iterator[tuple[str, Any]]:
    kind: Any = type(value)
    attributes, fields = attributes_of(value), _fields(kind)
    if fields is None:
        yield from _named({n: a for n, a in attributes.items() if not is_cache(kind, n)})
        return
    for name, compared in fields:
        part = attributes.get(name)
        if not (compared and _is_compared_whole(part)):
            yield f".{name}", part


def _held_in_c(value: Any) -> Iterator[tuple[str, Any]]:
    bases = type(value).__mro__
    if isinstance(value, ContextVar):
        yield ".get()", value.get(None)
    elif isinstance(value, threading.local):
        yield from _named(vars(value))
    elif any(base.__module__ == "_ctypes" for base in bases):
        yield ".value", memoryview(value).tobytes()
    elif any((base.__module__, base.__name__) == _SHARED for base in bases):
        yield ".value", memoryview(value.get_obj()).tobytes()


def _named(values: Any) -> Iterator[tuple[str, Any]]:
    return ((f".{name}", part) for name, part in list(values.items()))


def _constants(values: Any) -> Iterator[tuple[str, Any]]:
    for name, part in list(values.items()):
        if type(part) in CONSTANTS and not name.startswith("__"):
            yield f".{name}", part


_whole: Final[dict[int, weakref.ref[Any]]] = {}
"""The frozen objects that are known to be compared whole, by their `id`."""


def _is_compared_whole(value: Any, depth: int = _DEEPEST) -> bool:
    """Returns whether the equality of a thing leaves nothing out, and nothing in it can change."""
    kind: Any = type(value)
    if not depth:
        return False
    if isinstance(value, _COMPARED_WHOLE) or _is_of_arrays(kind):
        return True
    if kind is tuple:
        return all(_is_compared_whole(part, depth - 1) for part in value)
    known = _whole.get(id(value))
    if known is not None and known() is value:
        return True
    fields = _fields(kind) if _is_frozen(kind) else None
    held = attributes_of(value)
    if fields is None or not all(
        compared and _is_compared_whole(held.get(name), depth - 1) for name, compared in fields
    ):
        return False
    with contextlib.suppress(TypeError):  # with slots it may have no weak references
        _whole[id(value)] = weakref.ref(value, functools.partial(_forget, id(value)))
    return True


def _forget(number: int, reference: weakref.ref[Any]) -> None:
    if _whole.get(number) is reference:
        del _whole[number]


@functools.lru_cache(1024)
def _is_of_arrays(kind: Any) -> bool:
    return kind.__module__.partition(".")[0] in _ARRAYS and kind.__hash__ is not None


@functools.lru_cache(1024)
def _is_frozen(kind: Any) -> bool:
    """Returns whether no field of a class's instances can be assigned, as those of Linen's."""
    own = getattr(kind, "__dataclass_params__", None)
    linen = any(base.__module__.startswith("flax.linen") for base in kind.__mro__)
    return own is not None and (own.frozen or linen)


@functools.lru_cache(1024)
def _fields(kind: Any) -> list[tuple[str, bool]] | None:
    """Returns a dataclass's fields, and whether its equality compares them; None for others.

    What `__init__` does not take is computed, or is a cache.
    """
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is None:
        return None
    return [(name, bool(field.compare)) for name, field in fields.items() if field.init]


@functools.lru_cache(1024)
def _is_in_program(thing: Any) -> bool:
    """Returns whether a module, or a class, is part of the user's program, and of no library."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    if str(name).partition(".")[0] in OPAQUE_PACKAGES:
        return False
    module = thing if isinstance(thing, ModuleType) else sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return file is None or is_users(file)
