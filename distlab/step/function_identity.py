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
import dis
import functools
import math
import zlib
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, TypeAlias, cast

import jax
import numpy as np

from distlab.devices.jax_internals import ConcreteArray
from distlab.text.shown import shown
from distlab.user_code import is_users

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
_MOST_CODES: Final = 4096


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
    attributes that the code names. Of a method, the code of the methods and properties counts
    too that it reads of its object.

    Args:
      fn: A function, bound method, `functools.partial` or other callable.
    """
    kept: list[Any] = []
    if isinstance(fn, FunctionType | MethodType | functools.partial):
        return Identity(_key(fn, kept, (), ()), kept)
    names = _names(cast("Any", fn).__call__)
    try:
        hash(fn)
    except TypeError:
        return Identity(_of_object(fn, kept, (), names), kept)
    # Equal callables are the same, as for `jax.jit`.
    return Identity((type(fn), fn, *_attributes(fn, kept, names)), kept)


def references(fn: Callable[..., Any]) -> dict[str, Key]:
    """Returns the key of each thing that a function refers to, by name."""
    kept: list[Any] = []
    if isinstance(fn, functools.partial):
        named = [*((f"argument {n}", value) for n, value in enumerate(fn.args))]
        named += [*fn.keywords.items(), *referenced(fn.func)]
        names = _names(fn.func)
    else:
        named, names = list(referenced(fn)), _names(fn)
    return {name: _key(value, kept, (fn,), names) for name, value in named}


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
    constant = len(attribute) == 2 and not isinstance(attribute[1], tuple)
    return shown(attribute[1], 40) if constant else "other contents"


def _key(value: Any, kept: list[Any], inside: tuple[Any, ...], names: tuple[str, ...]) -> Key:
    """Returns the key of one thing that a function refers to.

    Args:
      value: The thing.
      kept: Collects the objects that stand in the key by their `id`.
      inside: The functions and containers around it.
      names: The attributes and globals that the function's code names.
    """
    kind = type(value)
    if kind in _CONSTANTS:
        return constant_key(value)
    key_of: Callable[..., Key] = _BY_TYPE.get(kind, _of_object)
    return key_of(value, kept, inside, names)


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


def _of_function(fn: Any, kept: list[Any], inside: tuple[Any, ...], names: tuple[str, ...]) -> Key:
    del names
    code = _id(fn.__code__, kept)
    if fn in inside or len(inside) >= _DEEPEST:
        return code
    inside, names = (*inside, fn), _names(fn)
    return (code, *(_key(value, kept, inside, names) for _, value in referenced(fn)))


def _of_bound(bound: Any, kept: list[Any], inside: tuple[Any, ...], names: tuple[str, ...]) -> Key:
    """Returns the key of a method or `functools.partial`."""
    del names
    if isinstance(bound, MethodType):
        function, parts = bound.__func__, [bound.__self__]
        keywords: tuple[str, ...] = ()
    else:
        function, parts = bound.func, [*bound.args, *bound.keywords.values()]
        keywords = tuple(bound.keywords)
    names = _names(bound)
    rest = (_key(part, kept, inside, names) for part in (function, *parts))
    return (type(bound), keywords, *rest)


def _of_elements(
    elements: Any, kept: list[Any], inside: tuple[Any, ...], names: tuple[str, ...]
) -> Key:
    if len(elements) > _MOST_ELEMENTS or len(inside) >= _DEEPEST:
        return _of_object(elements, kept, inside, ())
    parts = elements.items() if type(elements) is dict else elements
    inside = (*inside, None)
    return (type(elements), *(_key(part, kept, inside, names) for part in parts))


def _of_array(array: Any, kept: list[Any], inside: tuple[Any, ...], names: tuple[str, ...]) -> Key:
    identity = _of_object(array, kept, inside, names)
    if array.nbytes > _MOST_BYTES or array.dtype == object:
        return identity
    return identity, zlib.crc32(array.tobytes())  # somebody may have written to it


def _of_object(value: Any, kept: list[Any], inside: tuple[Any, ...], names: tuple[str, ...]) -> Key:
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
    attributes = _attributes(value, kept, names)
    return (*identity, *attributes) if attributes else identity


def _attributes(value: Any, kept: list[Any], names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Returns the attributes of an object that a function's code names: constants and arrays.

    Nests of them stand in it by those, so that `self.params, loss = ...` is noticed.
    """
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict:
        return []
    found: list[tuple[str, Any]] = []
    for name in names:
        if name not in attributes:
            continue
        attribute = attributes[name]
        if type(attribute) in _CONSTANTS or isinstance(attribute, np.number | np.bool):
            found.append((name, constant_key(attribute)))
        elif isinstance(attribute, _NESTS):
            leaves = jax.tree.leaves(attribute, is_leaf=lambda part: not isinstance(part, _NESTS))
            kinds = set(map(type, leaves))
            if kinds and kinds <= _CONSTANTS:
                found.append((name, _key(attribute, kept, (), ())))
            if kinds & _ARRAYS_WITH_NUMBERS and kinds <= _ARRAYS_WITH_NUMBERS | _CONSTANTS:
                found.append((name, _Arrays(_key(leaf, kept, (), ()) for leaf in leaves)))
    return found


class _Id(int):
    """The `id` of an object: no number of the user's."""

    __slots__ = ()


class _Arrays(tuple[Key, ...]):
    """The keys of the arrays of an attribute."""

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
    for name in _named_in(fn.__code__).globals:
        if name in scope:
            yield name, scope[name]


def _names(fn: Any) -> tuple[str, ...]:
    """Returns the globals and attributes that a function's code names, also inside it.

    Of a method, those count too that the methods and properties name which it reaches in its
    object.
    """
    if isinstance(fn, MethodType):
        kind: Any = type(fn.__self__)
        method = fn.__func__
        return _reached(kind, method) if isinstance(method, FunctionType) else _names(method)
    if isinstance(fn, functools.partial):
        return _names(fn.func)
    code = getattr(fn, "__code__", None)
    return _named_in(code).all if isinstance(code, CodeType) else ()


@functools.lru_cache(_MOST_CODES)
def _reached(kind: type, method: FunctionType) -> tuple[str, ...]:
    """Returns what a method of a class names, and what those name that it reaches.

    Those of libraries are left out: what a library counts in its objects is its own.
    """
    found, waiting = {method: None}, [method]
    while waiting:
        for name in _read_of_first(waiting.pop()):
            for member in (_function(base.__dict__.get(name)) for base in kind.__mro__):
                if member is not None and member not in found:
                    found[member] = None
                    waiting.append(member)
    return tuple(dict.fromkeys(name for member in found for name in _names(member)))


def _function(member: Any) -> FunctionType | None:
    """Returns the user's function in a member of a class, such as a property."""
    for wrapped in ("fget", "func", "__func__", "__wrapped__"):
        member = getattr(member, wrapped, member)
    is_own = isinstance(member, FunctionType) and is_users(member.__code__.co_filename)
    return member if is_own else None


def _read_of_first(method: FunctionType) -> Iterator[str]:
    """Yields the attributes that a method reads of its first parameter, which is its object."""
    code = method.__code__
    return _read_of(code, code.co_varnames[0]) if code.co_argcount else iter(())


def _read_of(code: CodeType, variable: str) -> Iterator[str]:
    if "super" in code.co_names:  # reads in ways of its own, which differ between Pythons
        yield from code.co_names
    loaded = None
    for step in dis.get_instructions(code):
        if step.opname in _LOADS_OF_ATTRIBUTES and loaded == variable:
            yield step.argval
        if step.opname != "EXTENDED_ARG":
            is_load = "LOAD_FAST" in step.opname or "LOAD_DEREF" in step.opname
            last = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
            loaded = last if is_load else None
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _read_of(inner, variable)


class _Named(NamedTuple):
    """What a code names.

    Attributes:
      code: The code. It is kept, so that no other code has its `id`.
      all: The globals and attributes.
      globals: The globals; an attribute may have the name of one.
    """

    code: CodeType
    all: tuple[str, ...]
    globals: tuple[str, ...]


def _named_in(code: CodeType) -> _Named:
    """Returns what a code and those inside it name."""
    known = _named_by_code.get(id(code))
    if known is None:
        inner = [_named_in(c) for c in code.co_consts if isinstance(c, CodeType)]
        names = dict.fromkeys([*code.co_names, *(n for one in inner for n in one.all)])
        loaded = [i.argval for i in dis.get_instructions(code) if i.opname in _LOADS_OF_GLOBALS]
        of_globals = dict.fromkeys([*loaded, *(n for one in inner for n in one.globals)])
        if len(_named_by_code) >= _MOST_CODES:
            _named_by_code.clear()
        known = _Named(code, tuple(names), tuple(of_globals))
        _named_by_code[id(code)] = known
    return known


_LOADS_OF_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_LOADS_OF_GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_named_by_code: dict[int, _Named] = {}


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the name has no value yet
        return cell
