"""What a function is: its code and everything that the code refers to.

The usual step of a tf.distribute program is made inside another function, anew at each call:

    def train_step(batch):
        def step_fn(x): ...
        strategy.run(step_fn, args=(batch,))

Each `step_fn` is another object and the same function. Programs are kept by what is compared
here, so they are found again.
"""

from __future__ import annotations

import cmath
import functools
import math
import zlib
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, TypeAlias, cast

import jax
import numpy as np

from distlab.devices.jax_internals import ConcreteArray
from distlab.step.code_reads import NOTHING, Path, Reads, named_in, reads_of
from distlab.text.shown import shown
from distlab.values.attributes import attribute

Key: TypeAlias = Any
"""Nested tuples with a hash."""

_CONSTANTS: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
_NUMBERS: Final = (int, float, complex, np.generic)
_ARRAYS: Final = (np.ndarray, jax.Array)
_ARRAYS_WITH_NUMBERS: Final = frozenset({np.ndarray, ConcreteArray})
"""The classes of arrays that are not being traced."""

_NESTS: Final = (*_ARRAYS, dict, list, tuple)
_MOST_ELEMENTS: Final = 64
_MOST_BYTES: Final = 1 << 16
_DEEPEST: Final = 8


class Identity(NamedTuple):
    """What distinguishes a function from others.

    Attributes:
      key: Equal for functions that are the same. Objects stand in it by their `id`.
      kept: Those objects. As long as they live, no other object has their `id`.
    """

    key: Key
    kept: list[Any]


def identity_of(fn: Callable[..., Any]) -> Identity:
    """Returns what distinguishes a function from others.

    Functions are the same when their code is, and when their defaults, closures and the
    globals that they name hold the same. Compared by value are constants, NumPy arrays of up
    to 64 KiB, and the elements of tuples, lists and dicts of up to 64; functions are compared
    as this one; other objects by identity, with the constants and the arrays in those of their
    attributes that the code names, and in the attributes of these that it reads. Of a method, the
    code of the methods and properties counts too that it reads of its object.

    Args:
      fn: A function, bound method, `functools.partial` or other callable.
    """
    kept: list[Any] = []
    if isinstance(fn, FunctionType | MethodType | functools.partial):
        return Identity(_key(fn, kept, (), NOTHING), kept)
    reads = reads_of(cast("Any", fn).__call__)
    try:
        hash(fn)
    except TypeError:
        return Identity(_of_object(fn, kept, (), reads), kept)
    # Equal callables are the same, as for `jax.jit`.
    return Identity((type(fn), fn, *_attributes(fn, kept, reads)), kept)


def references(fn: Callable[..., Any]) -> dict[str, Key]:
    """Returns the key of each thing that a function refers to, by name."""
    kept: list[Any] = []
    if isinstance(fn, functools.partial):
        named = [*((f"argument {n}", value) for n, value in enumerate(fn.args))]
        named += [*fn.keywords.items(), *referenced(fn.func)]
        fn = fn.func
    else:
        named = list(referenced(fn))
    return {name: _key(value, kept, (fn,), reads_of(fn, name)) for name, value in named}


def changed_values(before: dict[str, Key], after: dict[str, Key]) -> list[str]:
    """Returns the numbers and arrays that changed, such as `"rate: 0.1 -> 0.2"`.

    Other changes are left out: functions that refer to another model, or in another mode,
    are different functions.

    Args:
      before: The `references` of a function.
      after: Those of another function with the same code.
    """
    return [
        f"{name}: {_text(before[name])} -> {_text(key)}"
        for name, key in after.items()
        if name in before and _value_changed(before[name], key)
    ]


def _value_changed(before: Key, after: Key) -> bool:
    if before == after:
        return False
    if isinstance(after, _Arrays):
        return True
    if isinstance(after, _Other):  # else it may be the model of another trainer
        return isinstance(before, _Other) and before[0] == after[0]
    match before, after:
        case (type() as one, _Id()), (type() as other, _Id()):
            return issubclass(one, _ARRAYS) and issubclass(other, _ARRAYS)
        case tuple(), tuple():
            same_length = len(before) == len(after)
            return same_length and any(map(_value_changed, before, after))
        case _:
            return isinstance(after, _NUMBERS) and not isinstance(after, bool | _Id)


def _text(key: Key) -> str:
    match key:
        case (type() as kind, _Id(), *attributes):
            held = ", ".join(f"{name}={_held(value)}" for name, value in attributes)
            name = "array" if issubclass(kind, _ARRAYS) else kind.__name__
            article = "an" if name[:1] in "AEIOUaeiou" else "a"
            return f"{article} {name}" + (f" with {held}" if held else "")
        case (type(), constant) if not isinstance(constant, tuple):
            return f"{shown(constant, 40)}"
        case _:
            return "other contents"


def _held(attribute: Any) -> str:
    if isinstance(attribute, _Arrays):
        return "arrays"
    if isinstance(attribute, _Other):
        return f"a {attribute[1].__name__}"
    constant = len(attribute) == 2 and not isinstance(attribute[1], tuple)
    return shown(attribute[1], 40) if constant else "other contents"


def _key(value: Any, kept: list[Any], inside: tuple[Any, ...], reads: Reads) -> Key:
    """Returns the key of one thing that a function refers to.

    Args:
      value: The thing.
      kept: Collects the objects that stand in the key by their `id`.
      inside: The functions and containers around it.
      reads: What the function's code reads of it.
    """
    kind = type(value)
    if kind in _CONSTANTS:
        return constant_key(value)
    key_of: Callable[..., Key] = _BY_TYPE.get(kind, _of_object)
    return key_of(value, kept, inside, reads)


def constant_key(value: Any) -> Key:
    """Returns the key of a constant, or of a number of NumPy: its type counts, as 1 equals True."""
    kind = type(value)
    if not isinstance(value, float | complex | np.inexact):
        return kind, value
    number = complex(value)
    signs = math.copysign(1, number.real), math.copysign(1, number.imag)
    if cmath.isnan(number) or (0 in (number.real, number.imag) and -1 in signs):
        return kind, str(value)  # nan equals nothing, not even itself, and -0.0 equals 0.0
    return kind, value


def _of_function(fn: Any, kept: list[Any], inside: tuple[Any, ...], reads: Reads) -> Key:
    del reads
    code = _id(fn.__code__, kept)
    if fn in inside or len(inside) >= _DEEPEST:
        return code
    inside = (*inside, fn)
    referred = (_key(value, kept, inside, reads_of(fn, name)) for name, value in referenced(fn))
    return (code, *referred)


def _of_bound(bound: Any, kept: list[Any], inside: tuple[Any, ...], reads: Reads) -> Key:
    """Returns the key of a method or `functools.partial`."""
    del reads
    if isinstance(bound, MethodType):
        function, parts = bound.__func__, [bound.__self__]
        keywords: tuple[str, ...] = ()
    else:
        function, parts = bound.func, [*bound.args, *bound.keywords.values()]
        keywords = tuple(bound.keywords)
    reads = reads_of(bound)
    rest = (_key(part, kept, inside, reads) for part in (function, *parts))
    return (type(bound), keywords, *rest)


def _of_elements(elements: Any, kept: list[Any], inside: tuple[Any, ...], reads: Reads) -> Key:
    if len(elements) > _MOST_ELEMENTS or len(inside) >= _DEEPEST:
        return _of_object(elements, kept, inside, NOTHING)
    parts = elements.items() if type(elements) is dict else elements
    inside, reads = (*inside, None), Reads(reads.names, {})
    return (type(elements), *(_key(part, kept, inside, reads) for part in parts))


def _of_array(array: Any, kept: list[Any], inside: tuple[Any, ...], reads: Reads) -> Key:
    identity = _of_object(array, kept, inside, reads)
    if array.nbytes > _MOST_BYTES or array.dtype == object:
        return identity
    return identity, zlib.crc32(array.tobytes())  # somebody may have written to it


def _of_object(value: Any, kept: list[Any], inside: tuple[Any, ...], reads: Reads) -> Key:
    del inside
    if isinstance(value, np.void):  # a record: it can be written to, and has no hash
        return type(value), value.tobytes()
    if isinstance(value, np.generic):
        return constant_key(value)
    if isinstance(value, np.dtype):
        return type(value), value
    identity = (type(value), _id(value, kept))
    if isinstance(value, ModuleType | type):
        return identity
    attributes = _attributes(value, kept, reads)
    return (*identity, *attributes) if attributes else identity


def _attributes(value: Any, kept: list[Any], reads: Reads) -> list[tuple[str, Key]]:
    """Returns what a function's code reads of an object: its attributes, and those of these.

    By value are constants and arrays, and nests of them, so that `self.params, loss = ...` is
    noticed. Of what else the object's code reads, it counts which object it is.
    """
    attributes = attribute(value, "__dict__")
    if type(attributes) is not dict:
        return []
    found: dict[str, Key] = {}
    for name in reads.names:
        if name in attributes and (key := _by_value(attributes[name], kept)) is not None:
            found[name] = key
    for name, path in reads.paths.items():
        if name in found or (end := _at(value, path)) is value:
            continue
        key = _by_value(end, kept)
        if key is not None:
            found[name] = key
        elif not _is_traced(end):
            found[name] = _Other((id(value), type(end), _id(end, kept)))
    return list(found.items())


def _at(value: Any, path: Path) -> Any:
    """Returns the attribute at the end of a path; where it leads to a method, whose that is."""
    for name in path:
        attributes = attribute(value, "__dict__")
        if type(attributes) is not dict or name not in attributes or isinstance(value, ModuleType):
            break
        value = attributes[name]
    return value


def _is_traced(value: Any) -> bool:
    """Returns whether JAX is tracing a value, or a part of it: the last call has left it."""
    if not isinstance(value, _NESTS):
        return False
    return any(isinstance(leaf, jax.core.Tracer) for leaf in _leaves(value))


def _leaves(nest: Any) -> list[Any]:
    return jax.tree.leaves(nest, is_leaf=lambda part: not isinstance(part, _NESTS))


def _by_value(attribute: Any, kept: list[Any]) -> Key | None:
    """Returns the key of a constant, of an array, or of a nest of them; None for others."""
    if type(attribute) in _CONSTANTS or isinstance(attribute, np.number | np.bool):
        return constant_key(attribute)
    if not isinstance(attribute, _NESTS):
        return None
    leaves = _leaves(attribute)
    kinds = set(map(type, leaves))
    if kinds and kinds <= _CONSTANTS:
        return _key(attribute, kept, (), NOTHING)
    if kinds & _ARRAYS_WITH_NUMBERS and kinds <= _ARRAYS_WITH_NUMBERS | _CONSTANTS:
        return _Arrays(_key(leaf, kept, (), NOTHING) for leaf in leaves)
    return None


class _Id(int):
    """The `id` of an object: no number of the user's."""

    __slots__ = ()


class _Arrays(tuple[Key, ...]):
    """The keys of the arrays of an attribute."""

    __slots__ = ()


class _Other(tuple[Key, ...]):
    """Which object an attribute holds: the `id` of the attribute's object, a class, and its own."""

    __slots__ = ()


_BY_TYPE: Final[dict[type, Callable[..., Key]]] = {
    FunctionType: _of_function,
    MethodType: _of_bound,
    functools.partial: _of_bound,
    tuple: _of_elements,
    list: _of_elements,
    dict: _of_elements,
    np.ndarray: _of_array,
}


def _id(value: Any, kept: list[Any]) -> _Id:
    kept.append(value)
    return _Id(id(value))


def referenced(fn: Any) -> Iterator[tuple[str, Any]]:
    """Yields what a function refers to: defaults, closure, and the globals that it names."""
    if isinstance(fn, MethodType):
        yield "self", fn.__self__
        fn = fn.__func__
    if not isinstance(fn, FunctionType):
        return
    defaults, code = fn.__defaults__ or (), fn.__code__
    first = code.co_argcount - len(defaults)
    yield from zip(code.co_varnames[first : code.co_argcount], defaults, strict=True)
    yield from (fn.__kwdefaults__ or {}).items()
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        yield name, _contents(cell)
    scope = fn.__globals__
    for name in named_in(fn.__code__).globals:
        if name in scope:
            yield name, scope[name]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the name has no value yet
        return cell
