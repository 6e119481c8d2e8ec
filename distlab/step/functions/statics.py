"""The identity of arguments that are no arrays: what must be the same for one program to serve.

A program is compiled for the strings, booleans, functions and other objects that it was
traced with. This module says when two of them are the same, and what a trace has changed.
"""

from __future__ import annotations

import array
import copy
import enum
import weakref
import zlib
from collections import deque
from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from functools import cached_property, partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, Final, TypeAlias, final

import jax
import numpy as np

from distlab.errors import ArgumentTypeError
from distlab.step.functions.identity import identity_of
from distlab.step.functions.keys import MOST_BYTES, buffer_key, constant_key
from distlab.step.left_out import CONSTANTS, MOST_PARTS, OPAQUE_PACKAGES, left_out
from distlab.step.object_attributes import CONTAINERS, attributes_of
from distlab.text.shown import shown
from distlab.values.attributes import attribute
from distlab.values.checks import is_array_like
from distlab.values.plain_arrays import is_plain

Part: TypeAlias = tuple[str, Hashable]
"""The path of a part of an object, such as `.layers[0].rate`, and what the part is."""

_VIEWS: Final = (KeysView, ValuesView, ItemsView)
COLLECTIONS: Final = (*CONTAINERS, Mapping, *_VIEWS)  # whose parts their own methods yield
_VISIBLE: Final = frozenset({object, list, dict, set, deque, SimpleNamespace})
_MADE_BY_PYTHON: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_BUFFERS: Final = (bytearray, array.array, memoryview)
_HELD_IN_C: Final = {"pandas._libs.internals": ("axes", "blocks", "values")}
"""By the modules of classes, attributes that only their C knows: the columns of a DataFrame."""

_OF_PANDAS: Final = frozenset({"_cache", "_item_cache", "_cacher"})
"""Attributes in which pandas keeps what was read, the latter two before pandas 3."""

_FUNCTIONS: Final = (FunctionType, MethodType, partial)
_OBJECTS: Final = (type, ModuleType, BuiltinFunctionType, enum.Enum)


@final
class Static:
    """An argument that `static_argnums` or `static_argnames` names."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@final
class Same:
    """A key that equals that of the same object alone, which it keeps alive."""

    __slots__ = ("object",)

    def __init__(self, object_: Any) -> None:
        self.object = object_

    def __hash__(self) -> int:
        return id(self.object)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.object is other.object


class StaticKey(tuple[Part, ...]):
    """What distinguishes a static argument from others: what it is, and what it consists of."""

    __slots__ = ()


def static_key(value: Any) -> StaticKey:
    """Returns what distinguishes a static argument from others.

    By value are compared constants, dtypes, members of enumerations, and objects whose class
    defines equality and a hash (frozen dataclasses, Flax's Linen modules); those of the user's
    classes by their fields or attributes as well, which equality may leave out. Functions are
    compared by their code and what it refers to, the user's modules and classes by their
    constants. Any other object is compared by identity and by the values of its attributes, so
    that a change of one is noticed; where its class defines equality (a dataclass), by these
    values alone.
    """
    if type(value) in CONSTANTS:  # nearly always
        return StaticKey((("", constant_key(value)),))
    return StaticKey(_all_parts(value))


def is_static(value: Any) -> bool:
    """Returns whether an argument is part of the program: no array, and no number but a bool."""
    return isinstance(value, bool | enum.Enum) or not is_array_like(value)


def changed_parts(before: StaticKey, after: StaticKey, *, modes: bool = True) -> list[str]:
    """Returns what differs between two keys, such as `".rate: 0.1 -> 0.2"`."""
    old, new = dict(before), dict(after)
    changed = [path for path in {**old, **new} if old.get(path) != new.get(path)]
    return [
        f"{path}: {_text(old.get(path))} -> {_text(new.get(path))}"
        for path in changed
        if modes or not _is_mode(new.get(path))
    ]


def _is_mode(key: Any) -> bool:
    return isinstance(key, tuple) and key[0] in (str, bytes, bool, type(None))


@final
class GuardedArguments:
    """Static arguments that a trace must not change.

    Args:
      values: Pairs of a static argument's label and the argument.
    """

    def __init__(self, values: list[tuple[str, Any]]) -> None:
        self._before = []
        self._contents: list[tuple[Any, Any]] = []
        for label, value in values:
            entered: list[Any] = []
            key = StaticKey(_all_parts(value, entered))
            self._before.append((label, value, key))
            for thing in entered:
                self._contents += [(c, copy.copy(c)) for c in _writable(thing)]

    def restore(self) -> None:
        """Gives the arguments the attributes and elements that they had."""
        for container, contents in self._contents:
            container.clear()
            ordered = isinstance(container, list | deque | bytearray)
            (container.extend if ordered else container.update)(contents)

    def require_unchanged(self) -> None:
        """Checks that the arguments are what they were, and restores them if not."""
        for label, value, before in self._before:
            after = static_key(value)
            if after != before:
                self.restore()
                raise ArgumentTypeError(
                    f"The function changes {label}, a {type(value).__name__} "
                    f"({'; '.join(changed_parts(before, after))[:300]}). Its Python runs when it "
                    "is compiled, not at each step, so no such change would be kept. Hold what "
                    "changes in a distlab.Variable, or pass it as an argument of its own and "
                    "return it."
                )


def _writable(thing: Any) -> list[Any]:
    """Returns the attributes of an object, and the object itself if it is a container."""
    found = [thing] if isinstance(thing, list | dict | set | deque | bytearray) else []
    attributes = attribute(thing, "__dict__")
    return [*found, attributes] if type(attributes) is dict else found


def _all_parts(value: Any, entered: list[Any] | None = None) -> Iterator[Part]:
    """Yields what an argument is and consists of; see `_parts`."""
    yield from _parts(value, "", set(), [MOST_PARTS], entered)
    if isinstance(value, np.ndarray) and value.dtype.kind in "SU" and value.nbytes > MOST_BYTES:
        # As an attribute it would cost all who pass the object; this one is there to be read.
        yield "[:]", zlib.crc32(value.tobytes())


def _parts(
    value: Any,
    path: str,
    inside: set[int],
    budget: list[int],
    entered: list[Any] | None = None,
) -> Iterator[Part]:
    """Yields what a value is and, under their paths, what it consists of."""
    key = _as_one(value)
    if key is None and (id(value) in inside or budget[0] <= 0):
        key = Same(value)
    if key is not None:
        if entered is not None and isinstance(value, bytearray):
            entered.append(value)
        yield path, key
        contents = []
        if budget[0] > 0 and id(value) not in inside and type(value) not in CONSTANTS:
            contents = list(left_out(value, by_value=_is_value(key), is_cache=_is_cache))
        if not contents:
            return
    else:
        contents = list(parts_of(value))
        kind: Any = type(value)
        seen = contents or isinstance(value, COLLECTIONS)
        yield path, kind if seen and _compared_by_value(kind) else (kind, Same(value))
    inside.add(id(value))
    if entered is not None:
        entered.append(value)
    for name, part in contents:
        budget[0] -= 1
        yield from _parts(part, path + name, inside, budget, entered)


def _is_value(key: Hashable) -> bool:
    """Returns whether a key is that of an object which is compared by its equality."""
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], type)


def _as_one(value: Any) -> Hashable | None:
    """Returns the key of a thing that is compared as one; None if its contents are compared."""
    kind: Any = type(value)
    key: Hashable | None = None
    if kind in CONSTANTS:
        key = constant_key(value)
    elif isinstance(value, np.generic):
        key = (kind, value.tobytes())
    elif isinstance(value, np.ndarray | jax.Array):
        key = _array(value)
    elif isinstance(value, _BUFFERS):
        key = _buffer(value)
    elif isinstance(value, _FUNCTIONS):
        key = _function(value)
    elif isinstance(value, _OBJECTS):
        key = Same(value)
    elif kind.__eq__ is not tuple.__eq__ and _hashed_by_value(value):  # (1,) equals (True,)
        key = (kind, value)
    elif is_opaque(kind):
        key = None if isinstance(value, COLLECTIONS) else Same(value)
    return key


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the attributes and elements of an object, with their names."""
    if isinstance(value, set | frozenset):
        yield "{}", Same(value) if len(value) > MOST_PARTS else frozenset(map(_element, value))
        return
    if isinstance(value, Mapping):
        yield from ((f"[{shown(key, 40)}]", part) for key, part in list(value.items()))
    elif isinstance(value, (list, tuple, deque, *_VIEWS)):
        yield from ((f"[{n}]", part) for n, part in enumerate(list(value)))
    for name, part in list(attributes_of(value).items()):
        if not _is_cache(type(value), name):
            yield f".{name}", part
    for base in type(value).__mro__:
        for name in _HELD_IN_C.get(base.__module__, ()):
            if name in base.__dict__:
                yield f".{name}", getattr(value, name)


def _is_cache(kind: type, name: str) -> bool:
    """Returns whether an attribute is kept when it is read, and follows from the others."""
    owner = next((base for base in kind.__mro__ if name in base.__dict__), None)
    if owner is not None and isinstance(owner.__dict__[name], cached_property):
        return True
    return name in _OF_PANDAS and any(_package(base) == "pandas" for base in kind.__mro__)


def is_opaque(kind: Any) -> bool:
    """Returns whether objects of a class of Python, JAX or NumPy are compared as they are."""
    return kind.__hash__ is not None and _package(kind) in OPAQUE_PACKAGES


def _element(value: Any) -> Hashable:
    return constant_key(value) if type(value) in CONSTANTS else Same(value)


def _array(value: Any) -> Hashable:
    if isinstance(value, np.ndarray) and value.dtype.kind in "SU" and value.nbytes <= MOST_BYTES:
        return value.dtype, value.shape, value.tobytes()
    numpy = isinstance(value, np.ndarray) and is_plain(value)
    if not numpy or value.nbytes > MOST_BYTES or value.dtype == object:
        return Same(value)
    return Same(value), zlib.crc32(value.tobytes())  # somebody may have written to it


def _buffer(value: Any) -> Hashable:
    with memoryview(value) as view:
        return buffer_key(value) or (type(value), Same(value), zlib.crc32(view.tobytes()))


def _compared_by_value(kind: Any) -> bool:
    """Returns whether a class defines equality and no hash, and Python sees all its instances hold.

    That is not so for a class derived from one that is written in C.
    """
    return issubclass(kind, tuple) or (
        kind.__hash__ is None
        and all(base in _VISIBLE or base.__flags__ & _MADE_BY_PYTHON for base in kind.__mro__)
    )


def _hashed_by_value(value: Any) -> bool:
    """Returns whether an object's class defines a hash, and all that it holds has one."""
    kind: Any = type(value)
    if kind.__hash__ is None or kind.__hash__ is object.__hash__:
        return False
    try:
        hash(value)
    except Exception:  # noqa: BLE001 - any code of the user's
        return False
    return True


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


_functions: weakref.WeakKeyDictionary[FunctionType, Hashable] = weakref.WeakKeyDictionary()


def _function(fn: Callable[..., Any]) -> Hashable:
    known = _functions.get(fn) if isinstance(fn, FunctionType) else None
    if known is None:
        identity = identity_of(fn)
        known = _FunctionKey(identity.key, identity.kept)
        if isinstance(fn, FunctionType):
            _functions[fn] = known
    return known


@final
class _FunctionKey:
    """The identity of a function, with the objects that stand in it by their `id`."""

    __slots__ = ("_kept", "_key")

    def __init__(self, key: Hashable, kept: list[Any]) -> None:
        self._key = key
        self._kept = kept

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FunctionKey) and self._key == other._key


def _text(key: Any) -> str:
    match key:
        case None:
            return "nothing"
        case (type(), Same() as same):
            return f"a {type(same.object).__name__}"
        case (type() as kind, value):
            return f"{value if kind in (float, complex) else repr(value)!s:.40}"
        case Same() as same:
            return f"a {type(same.object).__name__}"
        case (Same() as same, int() | bytes()):
            return f"a {type(same.object).__name__}"
        case _:
            return "other contents"
