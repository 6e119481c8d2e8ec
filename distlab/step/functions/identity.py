"""What a function is: its code and everything that the code refers to.

The usual step of a tf.distribute program is made inside another function, anew at each call:

    def train_step(batch):
        def step_fn(x): ...
        strategy.run(step_fn, args=(batch,))

Each `step_fn` is another object and the same function. Programs are kept by what is compared
here, so they are found again.
"""

from __future__ import annotations

import functools
import zlib
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, TypeAlias, cast

import jax
import numpy as np

from distlab.devices.jax_internals import ConcreteArray
from distlab.step.code_flow import EACH
from distlab.step.code_reads import (
    END,
    NOTHING,
    Reads,
    Tree,
    contents_of,
    member_of,
    named_in,
    reads_of,
    reads_of_argument,
    reads_of_member,
)
from distlab.step.functions.keys import (
    MOST_BYTES,
    Arrays,
    Id,
    Kept,
    Key,
    Other,
    buffer_key,
    constant_key,
)
from distlab.step.object_attributes import (
    CONTAINERS,
    MISSING,
    attributes_of,
    elements_of,
    has_attributes,
    is_container,
    named_attributes,
    own_attribute,
)
from distlab.user_code import is_users
from distlab.values.attributes import attribute

_CONSTANTS: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
_ARRAYS: Final = (np.ndarray, jax.Array)
_ARRAYS_WITH_NUMBERS: Final = frozenset({np.ndarray, ConcreteArray})
"""The classes of arrays that are not being traced."""

_BYTES: Final = frozenset({array, bytearray})
_NESTS: Final = (*_ARRAYS, *CONTAINERS)
_WITHOUT_ATTRIBUTES: Final = (
    _CONSTANTS | _ARRAYS_WITH_NUMBERS | {tuple, list, dict, set, frozenset, deque}
)
_ALIKE: Final = frozenset({bool, int, float, str, bytes, type(None)})
_MOST_ELEMENTS: Final = 64
_MOST_CONSTANTS: Final = 1024
_MOST_OBJECTS: Final = 64
_DEEPEST: Final = 8

_Inside: TypeAlias = tuple[int, ...]


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
    to 64 KiB, and the elements of Python's containers, of up to 64 (of constants, 1,024);
    functions are compared as this one; other objects by identity, with the constants and the
    arrays in those of their attributes that the code names, and on the paths from there that it
    reads (`code_reads`), through elements, methods and properties of up to 64 objects. Of a method,
    the code of the methods and properties counts too that it reads of its object.

    What changes in any other place is not noticed: it is best an argument, or in a variable.
    """
    kept = Kept()
    if isinstance(fn, FunctionType | MethodType | functools.partial):
        return Identity(_key(fn, kept, (), NOTHING), kept)
    reads = reads_of(cast("Any", fn).__call__)
    try:
        hash(fn)
    except TypeError:
        return Identity(_of_object(fn, kept, (), reads), kept)
    # Equal callables are the same, as for `jax.jit`.
    attributes = _attributes(fn, kept, (), reads, reads.names)
    return Identity((type(fn), fn, *attributes), kept)


def references(fn: Callable[..., Any]) -> dict[str, Key]:
    """Returns the key of each thing that a function refers to, by name."""
    kept = Kept()
    if isinstance(fn, functools.partial):
        named = [*((f"argument {n}", value) for n, value in enumerate(fn.args))]
        named += [*fn.keywords.items(), *referenced(fn.func)]
        fn = fn.func
    else:
        named = list(referenced(fn))
    return {name: _key(value, kept, (id(fn),), reads_of(fn, name)) for name, value in named}


def _key(value: Any, kept: Kept, inside: _Inside, reads: Reads) -> Key:
    """Returns the key of one thing that a function refers to."""
    kind = type(value)
    if kind in _CONSTANTS:
        return constant_key(value)
    key_of: Callable[..., Key] = _BY_TYPE.get(kind, _of_object)
    return key_of(value, kept, inside, reads)


def _of_function(fn: Any, kept: Kept, inside: _Inside, reads: Reads) -> Key:
    del reads
    code = _id(fn.__code__, kept)
    if id(fn) in inside or len(inside) >= _DEEPEST:
        return code
    inside = (*inside, id(fn))
    referred = (_key(value, kept, inside, reads_of(fn, name)) for name, value in referenced(fn))
    return (code, *referred)


def _of_bound(bound: Any, kept: Kept, inside: _Inside, reads: Reads) -> Key:
    """Returns the key of a method or `functools.partial`."""
    del reads
    if len(inside) >= _DEEPEST:
        return type(bound), _id(bound, kept)
    reads = reads_of(bound)
    keywords: tuple[str, ...] = ()
    parts = [(_function_of(bound), reads)]
    if isinstance(bound, MethodType):
        parts.append((bound.__self__, reads))
    else:
        keywords = tuple(bound.keywords)
        given = [*enumerate(bound.args), *bound.keywords.items()]
        parts += [(part, reads_of_argument(bound, position)) for position, part in given]
    inside = (*inside, id(bound))
    return (type(bound), keywords, *(_key(part, kept, inside, read) for part, read in parts))


def _function_of(bound: Any) -> Any:
    return bound.__func__ if isinstance(bound, MethodType) else bound.func


def _of_elements(elements: Any, kept: Kept, inside: _Inside, reads: Reads) -> Key:
    kind = type(elements)
    if len(inside) >= _DEEPEST or id(elements) in inside:
        return kind, _id(elements, kept)
    if len(elements) > _MOST_ELEMENTS:
        return _of_many(elements) or (kind, _id(elements, kept))
    inside = (*inside, id(elements))
    if isinstance(elements, dict | MappingProxyType):
        parts: Iterable[Any] = zip(elements, elements_of(elements), strict=False)
    else:
        parts, reads = elements_of(elements), reads.of_each()
    keys = (_key(part, kept, inside, reads) for part in parts)
    return (kind, frozenset(keys)) if isinstance(elements, set | frozenset) else (kind, *keys)


def _of_many(elements: Any) -> Key | None:
    """Returns the key of many constants; None for other elements, and for very many."""
    if len(elements) > _MOST_CONSTANTS:
        return None
    parts = list(elements)
    if isinstance(elements, dict | MappingProxyType):
        parts += elements_of(elements)
    kinds = tuple(map(type, parts))
    if not _ALIKE.issuperset(kinds):
        return None
    floats = [part for part in parts if type(part) is float]
    others = parts if not floats else [part for part in parts if type(part) is not float]
    return type(elements), kinds, array("d", floats).tobytes(), tuple(others)


def _of_array(value: Any, kept: Kept, inside: _Inside, reads: Reads) -> Key:
    identity = _of_whole(value, kept, inside, reads)
    if value.nbytes > MOST_BYTES or value.dtype == object:
        return identity
    return identity, zlib.crc32(value.tobytes())  # somebody may have written to it


def _of_whole(value: Any, kept: Kept, inside: _Inside, reads: Reads) -> Key:
    del inside, reads
    return type(value), _id(value, kept)


def _of_bytes(value: Any, kept: Kept, inside: _Inside, reads: Reads) -> Key:
    identity = _of_whole(value, kept, inside, reads)
    return buffer_key(value) or (identity, memoryview(value).nbytes)


def _of_object(value: Any, kept: Kept, inside: _Inside, reads: Reads) -> Key:
    if isinstance(value, np.generic):
        # A record can be written to, and has no hash.
        is_record = isinstance(value, np.void)
        return (type(value), value.tobytes()) if is_record else constant_key(value)
    if isinstance(value, np.dtype):
        return type(value), value
    kind: Any = type(value)
    identity = (kind, _id(value, kept))
    if isinstance(value, ModuleType | type):
        return identity
    attributes = _attributes(value, kept, inside, reads, reads.names)
    if is_container(kind) and id(value) not in inside:
        if isinstance(value, tuple) and not attributes:
            return _of_elements(value, kept, inside, reads)
        attributes.append(("elements", _elements(value, kept, inside)))
    return (*identity, *attributes) if attributes else identity


def _attributes(
    value: Any, kept: Kept, inside: _Inside, reads: Reads, names: dict[str, None]
) -> list[tuple[str, Key]]:
    """Returns what a function's code reads of an object: its attributes, and those of these.

    By value are constants and arrays, and nests of them, so that `self.params, loss = ...` is
    noticed. Of what else the object's code reads, it counts which object it is.
    """
    if not reads.tree and not has_attributes(value):
        return []
    followed = id(value), id(reads.tree)
    if followed in kept.followed:
        return []
    kept.followed[followed] = value, reads.tree
    found: dict[str, Key] = {}
    for name in named_attributes(value, names):
        if (key := _by_value(own_attribute(value, name), kept)) is not None:
            found[name] = key
    if reads.tree:
        _Walk(found, kept, inside).down(value, reads.tree, "", value)
    return list(found.items())


class _Walk(NamedTuple):
    """A walk along the paths that a function reads of an object.

    Attributes:
      found: Collects the keys of what is at their ends, by their texts.
      kept: Collects the objects that stand in the keys by their `id`.
      inside: The ids of the functions and containers around the object.
    """

    found: dict[str, Key]
    kept: Kept
    inside: _Inside

    def down(self, value: Any, tree: Tree, text: str, owner: Any) -> None:
        """Goes on from an object."""
        kind = type(value)
        if kind in _WITHOUT_ATTRIBUTES or isinstance(value, ModuleType | type):
            if not self._end(value, text, owner) and EACH in tree:
                self._each(value, tree[EACH], text)
            return
        for name, more in tree.items():
            if name == END:
                self._end(value, text, owner)
            elif name == EACH:
                self._each(value, more, text)
            else:
                known = self.found.get(f"{text}.{name}" if text else name)
                if known is None or type(known) is Other:  # else all is known of it
                    self._attribute(value, name, more, text, owner)

    def _each(self, value: Any, tree: Tree, text: str) -> None:
        for number, element in enumerate(_first_elements(value)):
            self.down(element, tree, f"{text}[{number}]", value)

    def _attribute(self, value: Any, name: str, more: Tree, text: str, owner: Any) -> None:
        kind: Any = type(value)
        function = member_of(kind, name)
        inner = own_attribute(value, name) if function is None else MISSING
        if inner is not MISSING:
            self.down(inner, more, f"{text}.{name}" if text else name, value)
            return
        self._end(value, text, owner)
        if function is None and not hasattr(kind, name):
            function = member_of(kind, "__getattr__")
        if function is not None:
            self._follow(value, function, text)
        elif _holds_names(kind, name):
            for held, key in _named_values(value, self.kept):
                self.found.setdefault(f"{text}.{held}" if text else held, key)

    def _follow(self, value: Any, function: FunctionType, text: str) -> None:
        """Adds what a method or a property of an object reads of it."""
        if len(self.kept.followed) >= _MOST_OBJECTS:
            return
        reads = reads_of_member(type(value), function)
        for name, key in _attributes(value, self.kept, self.inside, reads, reads.kept_names):
            self.found.setdefault(f"{text}.{name}" if text else name, key)

    def _end(self, value: Any, text: str, owner: Any) -> bool:
        """Adds what is at a path's end, and returns whether that is compared by value."""
        if not text:
            return False
        key = self.found.get(text)
        if key is None:
            key = _by_value(value, self.kept)
            if key is not None:
                self.found[text] = key
            elif not _is_traced(value):
                which = _which(value, self.kept, self.inside)
                self.found[text] = key = Other((id(owner), type(value), which))
        return key is not None and type(key) is not Other


@functools.lru_cache(4096)
def _holds_names(kind: type, name: str) -> bool:
    """Returns whether objects of a library's class hold what is read of them by names or keys."""
    return hasattr(kind, "keys") and (name == "__getitem__" or not hasattr(kind, name))


def _named_values(value: Any, kept: Kept) -> Iterator[tuple[str, Key]]:
    for name, held in attributes_of(value).items():
        if (key := _by_value(held, kept)) is not None:
            yield name, key


def _which(value: Any, kept: Kept, inside: _Inside) -> Key:
    """Returns which object it is; of a function of the user's, and of elements, what they are."""
    if isinstance(value, FunctionType | MethodType | functools.partial):
        return _key(value, kept, inside, NOTHING) if _is_users(value) else _id(value, kept)
    if isinstance(value, CONTAINERS):
        return _id(value, kept), _elements(value, kept, inside)
    return _id(value, kept)


def _is_users(fn: Any) -> bool:
    while isinstance(fn, MethodType | functools.partial):
        fn = _function_of(fn)
    code = attribute(fn, "__code__")
    return isinstance(code, CodeType) and is_users(code.co_filename)


def _elements(container: Any, kept: Kept, inside: _Inside) -> Key:
    """Returns what the elements of a container are that is not compared by these alone."""
    key = _by_value(container, kept)
    if key is not None:
        return key
    if len(inside) >= _DEEPEST or id(container) in inside:
        return ()
    inside = (*inside, id(container))
    keys = [_element(part, kept, inside) for part in _first_elements(container)]
    return frozenset(keys) if isinstance(container, set | frozenset) else tuple(keys)


def _element(value: Any, kept: Kept, inside: _Inside) -> Key:
    key = _by_value(value, kept)
    return (type(value), _which(value, kept, inside)) if key is None else key


def _first_elements(container: Any) -> Iterable[Any]:
    """Returns the elements of a container; none of one that has too many to be looked at."""
    kind: Any = type(container)
    few = is_container(kind) and len(container) <= _MOST_ELEMENTS
    return elements_of(container) if few else ()


def _is_traced(value: Any) -> bool:
    """Returns whether JAX is tracing a value, or a part of it: the last call has left it."""
    if not isinstance(value, _NESTS):
        return False
    return any(isinstance(leaf, jax.core.Tracer) for leaf in _leaves(value))


def _leaves(nest: Any) -> list[Any]:
    """Returns what is in a nest of containers, at any depth."""
    found: list[Any] = []
    waiting = [iter((nest,))]
    while waiting:
        for part in waiting[-1]:
            if isinstance(part, CONTAINERS) and len(waiting) <= _DEEPEST:
                waiting.append(iter(elements_of(part)))
                break
            found.append(part)
        else:
            waiting.pop()
    return found


def _by_value(value: Any, kept: Kept) -> Key | None:
    """Returns the key of a constant, of an array, or of a nest of them; None for others."""
    kind: Any = type(value)
    key: Key | None = None
    if kind in _CONSTANTS or isinstance(value, np.number | np.bool):
        key = constant_key(value)
    elif kind in _ARRAYS_WITH_NUMBERS:
        key = Arrays((_BY_TYPE[kind](value, kept, (), NOTHING),))
    elif kind in _BYTES:
        key = _of_bytes(value, kept, (), NOTHING)
    elif is_container(kind):
        leaves = _leaves(value)
        kinds = set(map(type, leaves))
        if kinds and kinds <= _CONSTANTS:
            key = _of_elements(value, kept, (), NOTHING)
        elif kinds & _ARRAYS_WITH_NUMBERS and kinds <= _ARRAYS_WITH_NUMBERS | _CONSTANTS:
            key = Arrays(_key(leaf, kept, (), NOTHING) for leaf in leaves)
    return key


_BY_TYPE: Final[dict[type, Callable[..., Key]]] = {
    FunctionType: _of_function,
    MethodType: _of_bound,
    functools.partial: _of_bound,
    **dict.fromkeys((tuple, list, dict, set, frozenset, deque), _of_elements),
    **dict.fromkeys((Counter, OrderedDict, defaultdict, MappingProxyType), _of_elements),
    **dict.fromkeys(_BYTES, _of_bytes),
    np.ndarray: _of_array,
    ConcreteArray: _of_whole,
}


def _id(value: Any, kept: Kept) -> Id:
    kept.append(value)
    return Id(id(value))


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
        yield name, contents_of(cell)
    scope = fn.__globals__
    for name in named_in(fn.__code__).globals:
        if name in scope:
            yield name, scope[name]
