"""What a function's code names and reads: globals, attributes, and attributes of attributes.

It is read from the bytecode (`code_flow`), of the functions inside it, and of those to which it
passes what it reads, too.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from distlab.step.code_flow import (
    EACH,
    Call,
    Flow,
    Path,
    Source,
    flow_of,
    parameter_name,
    prolonged,
)
from distlab.user_code import is_users
from distlab.values.attributes import attribute

_MOST_CODES: Final = 4096
_LOADS_OF_GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})

END: Final = ""
"""The name in a tree at which a path ends."""

_T = TypeVar("_T")

Tree: TypeAlias = dict[str, "Tree"]
"""Paths by their first names, and what follows these."""


class Reads(NamedTuple):
    """What a function reads of an object.

    Attributes:
      names: The globals and attributes that its code names.
      kept_names: Those that are no attributes that it assigns.
      tree: The paths that it reads of the object, but for those that it assigns: they hold
        something else when they are read than before the call.
      paths: The paths, those too.
      assigned: The paths that it assigns.
    """

    names: dict[str, None]
    kept_names: dict[str, None]
    tree: Tree
    paths: frozenset[Path] = frozenset()
    assigned: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, names: Iterable[str], paths: Iterable[Path], assigned: Iterable[Path]) -> Reads:
        """Returns what is read."""
        paths, assigned = frozenset(paths), frozenset(assigned)
        tree: Tree = {}
        for path in sorted(paths):
            if not any(path[: len(other)] == other for other in assigned):
                node = tree
                for name in path:
                    node = node.setdefault(name, {})
                node[END] = {}
        all_names = dict.fromkeys(names)
        kept_names = {name: None for name in all_names if (name,) not in assigned}
        return cls(all_names, kept_names, tree, paths, assigned)

    def of_each(self) -> Reads:
        """Returns what is read of each element of the object."""
        return Reads(self.names, self.kept_names, self.tree.get(EACH, {}))


NOTHING: Final = Reads.of((), (), ())


def reads_of(fn: Any, variable: str | None = None) -> Reads:
    """Returns what a function reads.

    Of a method, that counts too which the methods and properties read that it reaches in its
    object. Paths are those of the user's own code: what a library counts in its objects is its own.
    """
    if isinstance(fn, MethodType):
        method: Any = fn.__func__
        known = isinstance(method, FunctionType)
        return reads_of_member(type(fn.__self__), method) if known else reads_of(method)
    if isinstance(fn, functools.partial):
        return reads_of(fn.func)
    return _of_variable(fn, variable, ()) if isinstance(fn, FunctionType) else NOTHING


def reads_of_argument(bound: functools.partial[Any], parameter: int | str) -> Reads:
    """Returns what a function reads of an argument that a `functools.partial` gives it."""
    fn: Any = bound.func
    if isinstance(fn, MethodType):
        fn, parameter = fn.__func__, parameter + 1 if isinstance(parameter, int) else parameter
    name = parameter_name(fn.__code__, parameter) if isinstance(fn, FunctionType) else None
    return reads_of(bound.func) if name is None else _of_variable(fn, name, ())


def reads_of_member(kind: Any, method: FunctionType) -> Reads:
    """Returns what a method reads of an object, and what those read that it reaches there.

    Those of libraries are left out.
    """
    return _of_member(kind, method, ())


@functools.lru_cache(_MOST_CODES)
def member_of(kind: Any, name: str) -> FunctionType | None:
    """Returns the user's function by which a class computes an attribute; None for none."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return _function(base.__dict__[name])
    return None


def contents_of(cell: CellType) -> Any:
    """Returns what a closure's name refers to; the cell itself while that is nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


_Inside: TypeAlias = tuple[tuple[Any, ...], ...]
"""What is being read, from the outermost: a function may call itself."""


def _of_variable(fn: FunctionType, variable: str | None, inside: _Inside) -> Reads:
    """Returns what a function, and those to which it passes that on, read of a variable."""
    named = named_in(fn.__code__)
    calls = named.calls.get(variable)
    if calls is None:
        known = named.known.get(variable)
        if known is None:
            known = named.known[variable] = _Known(named.reads(variable), ())
        return known.reads
    place = (id(named), variable)
    passed = () if place in inside else _passed(fn, calls, None, (*inside, place))
    key = (variable, *(id(reads) for _, reads in passed))
    known = named.known.get(key)
    if known is None:
        known = named.known[key] = _Known(_joined([named.reads(variable)], passed), passed)
    return known.reads


def _of_member(kind: Any, method: FunctionType, inside: _Inside) -> Reads:
    reached = _reached(kind, method)
    key: tuple[int, ...] = ()
    passed: list[tuple[Path, Reads]] = []
    if reached.calls:
        place = (kind, method)
        if place not in inside:
            for member, calls in reached.calls:
                passed += _passed(member, calls, kind, (*inside, place))
        key = tuple(id(reads) for _, reads in passed)
    known = reached.known.get(key)
    if known is None:
        joined = _joined(reached.own, passed)
        # What an object's own methods and properties compute is not there before.
        given = (path for path in joined.paths if _member(kind, path[0]) is None)
        reads = Reads.of(joined.names, given, joined.assigned)
        known = reached.known[key] = _Known(reads, passed)
    return known.reads


def _passed(
    fn: FunctionType, calls: Iterable[Call], kind: Any, inside: _Inside
) -> list[tuple[Path, Reads]]:
    """Returns the arguments that a function passes on, and what is read of them."""
    passed = []
    for call in calls:
        callee, first = _callee(fn, call.callee, kind)
        parameter = call.parameter
        if callee is not None:
            shifted = parameter + first if isinstance(parameter, int) else parameter
            name = parameter_name(callee.__code__, shifted)
            if name is not None:
                passed.append((call.argument.path, _of_variable(callee, name, inside)))
    return passed


def _joined(own: list[Reads], passed: Iterable[tuple[Path, Reads]]) -> Reads:
    names = dict.fromkeys(name for reads in own for name in reads.names)
    paths = {path for reads in own for path in reads.paths}
    assigned = {path for reads in own for path in reads.assigned}
    for prefix, reads in passed:
        paths.update(_prolonged(prefix, reads.paths))
        assigned.update(_prolonged(prefix, reads.assigned))
    return Reads.of(names, paths, assigned)


def _prolonged(prefix: Path, paths: Iterable[Path]) -> list[Path]:
    longer = (prolonged(Source("", prefix), path) for path in paths)
    return [source.path for source in longer if source is not None]


def _callee(fn: FunctionType, source: Source, kind: Any) -> tuple[FunctionType | None, int]:
    """Returns the user's function that is called, and how many arguments it gets before those."""
    variable, path = source
    if kind is not None and len(path) == 1 and variable == _first_parameter(fn):
        member = _member(kind, path[0])
        return _function(member), 0 if isinstance(member, staticmethod) else 1
    value: Any
    if variable in fn.__code__.co_freevars:
        value = contents_of((fn.__closure__ or ())[fn.__code__.co_freevars.index(variable)])
    else:
        value = fn.__globals__.get(variable)
    for name in path:
        value = value.__dict__.get(name) if isinstance(value, ModuleType | type) else None
    return users_function(value), 0


def users_function(value: Any) -> FunctionType | None:
    """Returns the user's function that a function, or one of `jax.jit`, is; None for others."""
    attributes = attribute(value, "__dict__")
    known = isinstance(value, FunctionType) or (
        type(attributes) is dict and "__wrapped__" in attributes
    )
    return _function(value) if known else None


class _Known(NamedTuple):
    """What was found, with that of which it was joined, so that nothing else has its `id`."""

    reads: Reads
    passed: Iterable[tuple[Path, Reads]]


class _Reached(NamedTuple):
    """The methods of an object that a method reaches.

    Attributes:
      own: What each of them reads of the object itself.
      calls: What each of them passes on, of the object.
      known: What is read in all, by what the functions read that get it.
    """

    own: list[Reads]
    calls: list[tuple[FunctionType, tuple[Call, ...]]]
    known: dict[tuple[int, ...], _Known]


@functools.lru_cache(_MOST_CODES)
def _reached(kind: type, method: FunctionType) -> _Reached:
    found, waiting = {method: None}, [method]
    while waiting:
        reading = waiting.pop()
        members = [
            _function(base.__dict__.get(name))
            for name in named_in(reading.__code__).first_read(_first_parameter(reading))
            for base in kind.__mro__
        ]
        for member in (*members, *_wrapped(reading)):
            if member is not None and member not in found:
                found[member] = None
                waiting.append(member)
    own, calls = [], []
    for member in found:
        named, variable = named_in(member.__code__), _first_parameter(member)
        own.append(named.reads(variable))
        if passed := named.calls.get(variable, ()):
            calls.append((member, passed))
    return _Reached(own, calls, {})


def _wrapped(function: FunctionType) -> list[FunctionType | None]:
    """Returns the functions that a decorator's function wraps."""
    return [users_function(contents_of(cell)) for cell in function.__closure__ or ()]


def _member(kind: Any, name: str) -> Any:
    """Returns the user's method or property of a name, of whichever base; None for none."""
    members = (base.__dict__.get(name) for base in kind.__mro__)
    return next((member for member in members if _function(member) is not None), None)


def _function(member: Any) -> FunctionType | None:
    """Returns the user's function in a member of a class, such as a property."""
    for wrapped in ("fget", "func", "__func__", "__wrapped__"):
        member = attribute(member, wrapped, member)
    is_own = isinstance(member, FunctionType) and is_users(member.__code__.co_filename)
    return member if is_own else None


def _first_parameter(method: FunctionType) -> str | None:
    """Returns the name by which a method knows its object."""
    code = method.__code__
    return code.co_varnames[0] if code.co_argcount else None


class Named(NamedTuple):
    """What a code and those inside it name.

    Attributes:
      code: The code. It is kept, so that no other code has its `id`.
      all: The globals and attributes.
      globals: The globals; an attribute may have the name of one.
      first: By variable, the attributes that are read of it.
      paths: By variable, the paths that the user's code reads.
      assigned: By variable, the paths that it assigns.
      calls: By variable, what it passes on of it.
      known: What functions of this code read of variables.
    """

    code: CodeType
    all: tuple[str, ...]
    globals: tuple[str, ...]
    first: dict[str | None, tuple[str, ...]]
    paths: dict[str | None, tuple[Path, ...]]
    assigned: dict[str | None, tuple[Path, ...]]
    calls: dict[str | None, tuple[Call, ...]]
    known: dict[Any, _Known]

    def reads(self, variable: str | None) -> Reads:
        """Returns what is read of a variable."""
        paths, assigned = self.paths.get(variable, ()), self.assigned.get(variable, ())
        return Reads.of(self.all, paths, assigned)

    def first_read(self, variable: str | None) -> tuple[str, ...]:
        """Returns the attributes that are read of a method's object."""
        if "super" in self.all:  # reads in ways of its own, which differ between Pythons
            return self.all
        return self.first.get(variable, ())


_named_by_code: dict[int, Named] = {}


def named_in(code: CodeType) -> Named:
    """Returns what a code and those inside it name."""
    known = _named_by_code.get(id(code))
    if known is None:
        inner = [named_in(c) for c in code.co_consts if isinstance(c, CodeType)]
        names = dict.fromkeys([*code.co_names, *(n for one in inner for n in one.all)])
        loaded = [i.argval for i in dis.get_instructions(code) if i.opname in _LOADS_OF_GLOBALS]
        of_globals = dict.fromkeys([*loaded, *(n for one in inner for n in one.globals)])
        flow = flow_of(code)
        reached = (*flow.read, *(source for source in flow.assigned if len(source.path) > 1))
        if not is_users(code.co_filename):
            flow = Flow((), (), ())  # what a library counts in its objects is its own
        if len(_named_by_code) >= _MOST_CODES:
            _named_by_code.clear()
        known = Named(
            *(code, tuple(names), tuple(of_globals)),
            first=_grouped((variable, path[0]) for variable, path in reached),
            paths=_grouped(flow.read),
            assigned=_grouped(flow.assigned),
            calls=_grouped((call.argument.variable, call) for call in flow.calls),
            known={},
        )
        _named_by_code[id(code)] = known
    return known


def _grouped(pairs: Iterable[tuple[str, _T]]) -> dict[str | None, tuple[_T, ...]]:
    """Returns what is paired with each variable, once and in order."""
    groups: dict[str | None, dict[_T, None]] = {}
    for variable, value in pairs:
        groups.setdefault(variable, {})[value] = None
    return {variable: tuple(values) for variable, values in groups.items()}
