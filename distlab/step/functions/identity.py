"""The identity of replica functions and of their static arguments.

The usual step of a tf.distribute program is made inside another function, anew at each call:

    def train_step(batch):
        def step_fn(x): ...
        strategy.run(step_fn, args=(batch,))

Each `step_fn` is another object and the same function. Two rules say when a program serves again:

- A function is its code, its defaults and its closure. Functions, Python's constants and tuples of
  these are compared by value, everything else by identity.
- A static argument is compared by `==` where its class defines both equality and a hash,
  otherwise by identity.

A change that neither rule sees, as of a global number or an object's attribute, is left
unnoticed, as by `jax.jit`.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Hashable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.text.shown import shown
from distlab.values.checks import is_array_like
from distlab.values.texts import are_texts

Key: TypeAlias = Hashable
"""Nested tuples. Objects that are compared by identity stand in them by their `id`."""

_CONSTANTS: Final = frozenset({bool, int, str, bytes, type(None)})
_PYTHON_NUMBERS: Final = frozenset({int, float, complex})
_MOST_ELEMENTS: Final = 64
_DEEPEST: Final = 8
_NUMBERS: Final = (int, float, complex, np.generic, np.ndarray, jax.Array)
_EMPTY: Final = object()


class Identity(NamedTuple):
    """A function's key, and the objects whose `id` stands in it, kept alive."""

    key: Key
    kept: list[Any]


def identity_of(value: Any) -> Identity:
    """Returns the identity of a function, or of a static argument."""
    kept: list[Any] = []
    return Identity(key_of(value, kept), kept)


def key_of(value: Any, kept: list[Any], inside: tuple[int, ...] = ()) -> Key:
    """Returns the key of a function, or of a value in one; `kept` collects objects by identity."""
    kind: Any = type(value)
    number = id(value)
    found: Key = None
    if kind in _CONSTANTS:
        found = kind, value
    elif kind is float or kind is complex:
        found = kind, repr(value)  # nan equals nothing, and -0.0 equals 0.0
    elif number in inside or len(inside) >= _DEEPEST:
        pass
    elif kind is FunctionType:
        found = _function_key(value, kept, (*inside, number))
    elif kind is MethodType:
        found = kind, key_of(value.__func__, kept, inside), _object_key(value.__self__, kept)
    elif kind is tuple or kind is functools.partial:
        parts = _parts(value)
        if len(parts) <= _MOST_ELEMENTS:
            inside = (*inside, number)
            found = (kind, *[key_of(part, kept, inside) for part in parts])
    elif _compares_by_value(value):
        found = kind, value
    return _object_key(value, kept) if found is None else found


def _function_key(fn: FunctionType, kept: list[Any], inside: tuple[int, ...]) -> Key:
    """Returns the key of a function: code by identity, as IPython's autoreload replaces it."""
    code = fn.__code__
    kept.append(code)
    held = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    cells = fn.__closure__ or ()
    if not held and not cells:
        return (id(code),)
    values = [*held, *[_content(cell) for cell in cells]]
    return (id(code), *[key_of(value, kept, inside) for value in values])


def _object_key(value: Any, kept: list[Any]) -> Key:
    kept.append(value)
    return type(value), id(value)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return _EMPTY


def _parts(value: Any) -> list[Any]:
    if isinstance(value, functools.partial):
        return [value.func, len(value.args), *value.args, *value.keywords, *value.keywords.values()]
    return list(value)


def _compares_by_value(value: Any) -> bool:
    """Returns whether a class defines equality and a hash, and this object has one."""
    kind: Any = type(value)
    if kind.__hash__ is None or kind.__hash__ is object.__hash__ or kind.__eq__ is object.__eq__:
        return False
    try:
        hash(value)
    except TypeError:  # of an element
        return False
    return True


def is_static(value: Any) -> bool:
    """Returns whether an argument is part of the program: no array, and no number but a bool."""
    return isinstance(value, bool | enum.Enum) or not is_array_like(value)


@final
class Static:
    """An argument that `static_argnums` or `static_argnames` names."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@final
class StaticKey:
    """The key of a static argument that is no constant; keeps alive what it is compared by."""

    __slots__ = ("_hash", "_identity", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._identity = identity_of(value)
        self._hash = hash(self._identity.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticKey) and self._identity.key == other._identity.key


def leaf_key(leaf: Any) -> Hashable:
    """Returns the key of a leaf of arguments."""
    value = leaf.value if type(leaf) is Static else leaf
    kind: Any = type(value)
    if kind in _PYTHON_NUMBERS and kind is type(leaf):
        # As the array that a step makes of it: a state may begin with a Python number.
        return _number_key(cast("Hashable", kind), x64=jax.config.read("jax_enable_x64"))
    if kind in _CONSTANTS:
        return kind, value
    if type(leaf) is Static:
        return StaticKey(value)
    if isinstance(leaf, jax.core.Tracer):
        return "traced", leaf.shape, leaf.dtype, getattr(leaf.aval, "weak_type", False)
    if isinstance(leaf, jax.Array):  # random keys
        return leaf.shape, leaf.dtype
    static = is_static(leaf) and not are_texts(leaf)  # which no program reads
    return StaticKey(leaf) if static else (leaf.shape, leaf.dtype, False)


@functools.lru_cache(8)
def _number_key(kind: Hashable, *, x64: bool) -> Hashable:
    del x64  # decides about the dtype
    return (), jnp.result_type(cast("Any", kind)), True


def static_of(key: Any) -> StaticKey | None:
    """Returns the key of a static argument with its value; None for the key of an array."""
    if isinstance(key, StaticKey):
        return key
    return StaticKey(key[1]) if isinstance(key[0], type) else None


class Reference(NamedTuple):
    """A value to which a function refers."""

    identity: Identity
    text: str
    counts: bool  # a number or an array, or holds one


def references(fn: Any, depth: int = 3) -> dict[str, Reference]:
    """Returns what a function's defaults and closure hold, by name; also of functions in these."""
    found: dict[str, Reference] = {}
    for name, value in _held(fn):
        found.setdefault(name, Reference(identity_of(value), _text(value), _counts(value)))
        if depth and isinstance(value, FunctionType | MethodType | functools.partial):
            for inner, reference in references(value, depth - 1).items():
                found.setdefault(inner, reference)
    return found


def changes(before: dict[str, Reference], after: dict[str, Reference]) -> list[str]:
    """Returns the numbers and arrays that changed, such as `"rate: 0.1 -> 0.2"`."""
    return [
        f"{name}: {before[name].text} -> {now.text}"
        for name, now in after.items()
        if now.counts
        and name in before
        and before[name].counts
        and before[name].identity.key != now.identity.key
    ]


def are_of_one_training(before: dict[str, Reference], after: dict[str, Reference]) -> bool:
    """Returns whether all but numbers and arrays is the same, such as variables and models."""
    return all(
        now.counts or name not in before or before[name].identity.key == now.identity.key
        for name, now in after.items()
    )


def _held(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yields what counts for a function's identity, with the names."""
    if isinstance(fn, functools.partial):
        yield from ((f"argument {n}", value) for n, value in enumerate(fn.args))
        yield from fn.keywords.items()
        yield "function", fn.func
        return
    if isinstance(fn, MethodType):
        yield "self", fn.__self__
        fn = fn.__func__
    if isinstance(fn, FunctionType):
        defaults, code = fn.__defaults__ or (), fn.__code__
        first = code.co_argcount - len(defaults)
        yield from zip(code.co_varnames[first : code.co_argcount], defaults, strict=True)
        yield from (fn.__kwdefaults__ or {}).items()
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
            yield name, _content(cell)


def referenced(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yields what a function refers to, for messages: what it holds, and the globals it names."""
    yield from _held(fn)
    fn = fn.__func__ if isinstance(fn, MethodType) else fn
    if isinstance(fn, FunctionType):
        scope = fn.__globals__
        yield from ((name, scope[name]) for name in fn.__code__.co_names if name in scope)


def _counts(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        parts = list(value.values() if isinstance(value, dict) else value)
        return any(isinstance(part, _NUMBERS) for part in parts[:_MOST_ELEMENTS])
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray | jax.Array):
        return "an array"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__}"
    return shown(value, 40)
