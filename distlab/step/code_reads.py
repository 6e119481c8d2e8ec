"""What a function's code names and reads: globals, attributes, and attributes of attributes.

It is read from the bytecode, of the functions inside it, too.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from distlab.user_code import is_users
from distlab.values.attributes import attribute

Path: TypeAlias = tuple[str, ...]
"""Attributes of attributes: `("cfg", "lr")` of `self` for `self.cfg.lr`."""

_MOST_CODES: Final = 4096
_LOADS_OF_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_LOADS_OF_GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


class Reads(NamedTuple):
    """What a function reads of an object.

    Attributes:
      names: The globals and attributes that its code names.
      paths: The paths that it reads of the object, by their text, but for those of attributes that
        it assigns: such a one holds something else when it is read than before the call.
    """

    names: tuple[str, ...]
    paths: dict[str, Path]


NOTHING: Final = Reads((), {})


def reads_of(fn: Any, variable: str | None = None) -> Reads:
    """Returns what a function reads.

    Of a method, that counts too which the methods and properties read that it reaches in its
    object. Paths are those of the user's own code: what a library counts in its objects is its own.

    Args:
      fn: The function, method or `functools.partial`.
      variable: The name by which a function refers to the object; methods read theirs.
    """
    if isinstance(fn, MethodType):
        kind: Any = type(fn.__self__)
        method = fn.__func__
        return _reached(kind, method) if isinstance(method, FunctionType) else reads_of(method)
    if isinstance(fn, functools.partial):
        return reads_of(fn.func)
    code = attribute(fn, "__code__")
    if not isinstance(code, CodeType):
        return NOTHING
    named = named_in(code)
    paths = named.paths.get(variable, {})
    if paths and (assigned := named.assigned.get(variable)):
        paths = {text: path for text, path in paths.items() if path[0] not in assigned}
    return Reads(named.all, paths)


# By code: a method that was kept would keep its class, and what it refers to.
_of_classes: Final[WeakKeyDictionary[type, dict[CodeType, Reads]]] = WeakKeyDictionary()


def _reached(kind: type, method: FunctionType) -> Reads:
    """Returns what a method of a class reads, and what those read that it reaches.

    Those of libraries are left out.
    """
    known = _of_classes.get(kind)
    if known is None:
        known = _of_classes[kind] = {}
    reads = known.get(method.__code__)
    if reads is None:
        reads = known[method.__code__] = _read_by(kind, method)
    return reads


def _read_by(kind: type, method: FunctionType) -> Reads:
    found, waiting = {method: None}, [method]
    while waiting:
        for name in _first_read(waiting.pop()):
            for member in (_function(base.__dict__.get(name)) for base in kind.__mro__):
                if member is not None and member not in found:
                    found[member] = None
                    waiting.append(member)
    named = [(_first_parameter(member), named_in(member.__code__)) for member in found]
    names = dict.fromkeys(name for _, one in named for name in one.all)
    assigned = {name for variable, one in named for name in one.assigned.get(variable, ())}
    paths = {
        text: path
        for variable, one in named
        for text, path in one.paths.get(variable, {}).items()
        if _is_given(kind, path, assigned)
    }
    return Reads(tuple(names), paths)


def _is_given(kind: type, path: Path, assigned: set[str]) -> bool:
    """Returns whether an object has a path before its methods assign or compute it."""
    computed = any(_function(base.__dict__.get(path[0])) for base in kind.__mro__)
    return not computed and path[0] not in assigned


def _function(member: Any) -> FunctionType | None:
    """Returns the user's function in a member of a class, such as a property."""
    for wrapped in ("fget", "func", "__func__", "__wrapped__"):
        member = getattr(member, wrapped, member)
    is_own = isinstance(member, FunctionType) and is_users(member.__code__.co_filename)
    return member if is_own else None


def _first_parameter(method: FunctionType) -> str | None:
    """Returns the name by which a method knows its object."""
    code = method.__code__
    return code.co_varnames[0] if code.co_argcount else None


def _first_read(method: FunctionType) -> Iterator[str]:
    """Yields the attributes that a method reads of its object."""
    variable = _first_parameter(method)
    if variable is not None:
        yield from _read_of(method.__code__, variable)


def _read_of(code: CodeType, variable: str) -> Iterator[str]:
    if "super" in code.co_names:  # reads in ways of its own, which differ between Pythons
        yield from code.co_names
    for name, path, assigned in _accesses(code):
        if name == variable and not (assigned and len(path) == 1):
            yield path[0]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _read_of(inner, variable)


def _accesses(code: CodeType) -> Iterator[tuple[str, Path, bool]]:
    """Yields the paths of variables, and whether the last attribute is assigned."""
    variable: str | None = None
    path: list[str] = []
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            continue
        if variable is not None and step.opname in _LOADS_OF_ATTRIBUTES:
            path.append(step.argval)
            continue
        if variable is not None and step.opname == "STORE_ATTR":
            yield variable, (*path, step.argval), True
        elif variable is not None and path:
            yield variable, tuple(path), False
        path = []
        loads = any(kind in step.opname for kind in ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL"))
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        variable = names[-1] if loads else None


class Named(NamedTuple):
    """What a code names.

    Attributes:
      code: The code. It is kept, so that no other code has its `id`.
      all: The globals and attributes.
      globals: The globals; an attribute may have the name of one.
      paths: By variable, the paths that the user's code reads, by their text.
      assigned: By variable, the attributes that it assigns, or an attribute of which.
    """

    code: CodeType
    all: tuple[str, ...]
    globals: tuple[str, ...]
    paths: dict[str | None, dict[str, Path]]
    assigned: dict[str | None, set[str]]


_named_by_code: dict[int, Named] = {}


def named_in(code: CodeType) -> Named:
    """Returns what a code and those inside it name."""
    known = _named_by_code.get(id(code))
    if known is None:
        inner = [named_in(c) for c in code.co_consts if isinstance(c, CodeType)]
        names = dict.fromkeys([*code.co_names, *(n for one in inner for n in one.all)])
        loaded = [i.argval for i in dis.get_instructions(code) if i.opname in _LOADS_OF_GLOBALS]
        of_globals = dict.fromkeys([*loaded, *(n for one in inner for n in one.globals)])
        paths: dict[str | None, dict[str, Path]] = {}
        assigned: dict[str | None, set[str]] = {}
        for variable, path, is_assigned in _accesses(code) if is_users(code.co_filename) else ():
            if is_assigned:
                assigned.setdefault(variable, set()).add(path[0])
            else:
                paths.setdefault(variable, {})[".".join(path)] = path
        for one in inner:
            for holder, read in one.paths.items():
                paths.setdefault(holder, {}).update(read)
            for holder, attributes in one.assigned.items():
                assigned.setdefault(holder, set()).update(attributes)
        if len(_named_by_code) >= _MOST_CODES:
            _named_by_code.clear()
        known = Named(code, tuple(names), tuple(of_globals), paths, assigned)
        _named_by_code[id(code)] = known
    return known
