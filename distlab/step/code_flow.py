"""Where a code's values come from: which attributes of which variables it reads, and passes on.

Python's stack is followed through the bytecode, from the first to the last instruction. So what
`lr` is of `self` is known in `self.config.lr`, after `config = self.config`, in `getattr`, and of
each layer in `for layer in self.layers`. Where two ways meet, the stack holds what either left.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, Final, NamedTuple, TypeAlias, final

Path: TypeAlias = tuple[str, ...]
"""Attributes of attributes: `("cfg", "lr")` of `self` for `self.cfg.lr`."""

EACH: Final = "[]"
"""Stands in a path for every element of a list, a tuple or a dict."""

_HELD: Final = "()"
"""Ends the path of what a list holds that the code makes: `[self.cfg]`."""

_MOST_SOURCES: Final = 8
_LONGEST: Final = 8
_NULL_IS_LAST: Final = sys.version_info >= (3, 13)

_READ_BY_NAME: Final = frozenset({"getattr", "hasattr"})
_PASS_ELEMENTS: Final = frozenset(
    {"enumerate", "iter", "list", "reversed", "sorted", "tuple", "zip"}
)
_TRANSFORM: Final = frozenset({"checkpoint", "grad", "jit", "remat", "value_and_grad", "vmap"})
_ADD: Final = frozenset({"append", "appendleft", "extend", "setdefault"})
_OF_MAPPINGS: Final = frozenset({"items", "values"})

_JUMPS: Final = frozenset([*dis.hasjrel, *dis.hasjabs])
_ENDS: Final = ("RETURN_", "RAISE_", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD")
_LEAVE_THE_TOP: Final = (
    *("POP_", "DELETE_", "RETURN_", "LIST_", "SET_", "MAP_", "DICT_", "END_", "STORE_"),
    *("LOAD_", "RESUME", "NOP", "COPY_FREE_VARS", "MAKE_CELL", "EXTENDED_ARG", "JUMP_", "PRECALL"),
)
"""Instructions that push, or only pop: what lies below stays."""


class Source(NamedTuple):
    """Where a value comes from: a variable, and the path from there."""

    variable: str
    path: Path = ()


class Call(NamedTuple):
    """A value that is passed on.

    Attributes:
      callee: Where what is called comes from.
      parameter: The position or the name of the argument.
      argument: Where the argument comes from.
    """

    callee: Source
    parameter: int | str
    argument: Source


class Flow(NamedTuple):
    """What a code and the codes inside it read, assign and pass on.

    Attributes:
      read: The paths that are read.
      assigned: The paths whose last attribute is assigned.
      calls: What is passed to what.
    """

    read: tuple[Source, ...]
    assigned: tuple[Source, ...]
    calls: tuple[Call, ...]


class _Constant(NamedTuple):
    value: Any


_Origin: TypeAlias = Source | CodeType
_Symbol: TypeAlias = tuple[_Origin, ...] | _Constant
"""What a slot of the stack may hold: what comes from one of several origins, or a constant."""

_NULL: Final = _Constant(None)
_UNKNOWN: Final[tuple[_Origin, ...]] = ()


def flow_of(code: CodeType) -> Flow:
    """Returns what a code and the codes inside it read, assign and pass on."""
    reader = _Reader(code)
    for step in dis.get_instructions(code):
        reader.follow(step)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            reader.add(inner, flow_of(inner))
    return reader.flow()


def parameter_name(code: CodeType, parameter: int | str) -> str | None:
    """Returns the name of a parameter; None where the code has none of its own for it."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if isinstance(parameter, str):
        return parameter if parameter in names else None
    return names[parameter] if parameter < code.co_argcount else None


def prolonged(source: Source, more: Path) -> Source | None:
    """Returns a source with more of a path; None where that is longer than paths are followed."""
    variable, path = source
    if more and path[-1:] == (_HELD,):
        return prolonged(Source(variable, path[:-1]), more[1:]) if more[0] == EACH else None
    return Source(variable, path + more) if len(path) + len(more) <= _LONGEST else None


@final
class _Reader:
    """Follows the stack of one code."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._stack: list[_Symbol] = []
        self._there: dict[int, list[_Symbol]] = {}
        self._ended = False
        self._keywords: tuple[str, ...] = ()
        self._held: dict[str, dict[_Origin, None]] = {}
        self._read: dict[Source, None] = {}
        self._assigned: dict[Source, None] = {}
        self._calls: dict[tuple[_Origin, int | str, Source], None] = {}
        self._inner: dict[CodeType, Flow] = {}

    def follow(self, step: dis.Instruction) -> None:
        """Follows an instruction."""
        there = self._there.pop(step.offset, None)
        if there is not None:
            self._stack = there if self._ended else _either(self._stack, there)
        elif self._ended:
            self._stack = []  # a handler of exceptions
        if step.opcode in _JUMPS and step.argval > step.offset:
            self._note_jump(step)
        name = step.opname
        if "STORE_FAST" in name or "LOAD_FAST" in name:
            self._locals(step)
        else:
            handler = _SUBSCRIPT if step.argrepr == "[]" else _HANDLERS.get(name, _Reader._other)
            handler(self, step)
        self._ended = name.startswith(_ENDS)

    def add(self, inner: CodeType, flow: Flow) -> None:
        """Adds what a code inside this one does with variables that are not its own."""
        self._inner[inner] = flow
        own = {*inner.co_varnames, *inner.co_cellvars}
        self._read.update((one, None) for one in flow.read if one.variable not in own)
        self._assigned.update((one, None) for one in flow.assigned if one.variable not in own)
        for call in flow.calls:
            if call.argument.variable not in own and call.callee.variable not in own:
                self._calls[call.callee, call.parameter, call.argument] = None

    def flow(self) -> Flow:
        """Returns what was followed, back to the variables from which local ones come."""
        read = {one: None for source in self._read for one in self._origins(source)}
        assigned = {one: None for source in self._assigned for one in self._origins(source)}
        calls: dict[Call, None] = {}
        for called, parameter, passed in self._calls:
            arguments = [one for one in self._origins(passed) if isinstance(one, Source)]
            for callee in self._origins(called):
                if isinstance(callee, Source):
                    calls.update((Call(callee, parameter, one), None) for one in arguments)
                    continue
                name, flow = parameter_name(callee, parameter), self._inner.get(callee)
                for argument in arguments if flow is not None else ():
                    assert flow is not None
                    read.update(dict.fromkeys(_through(argument, name, flow.read)))
                    assigned.update(dict.fromkeys(_through(argument, name, flow.assigned)))
                    for call in flow.calls:
                        for one in _through(argument, name, [call.argument]):
                            calls[call._replace(argument=one)] = None
        kept = dict.fromkeys(_without_elements(one) for one in read if isinstance(one, Source))
        return Flow(
            tuple(one for one in kept if one.path),
            tuple(one for one in assigned if isinstance(one, Source)),
            tuple(calls),
        )

    def _origins(self, value: _Origin) -> Iterable[_Origin]:
        """Returns an origin, and those of what was assigned to its variable."""
        found = {value: None}
        waiting = [value]
        while waiting and len(found) < _MOST_SOURCES:
            one = waiting.pop()
            if isinstance(one, Source):
                held = tuple(self._held.get(one.variable, ()))
                new = [origin for origin in _prolonged(held, one.path) if origin not in found]
                found.update(dict.fromkeys(new))
                waiting += new
        return found

    def _note_jump(self, step: dis.Instruction) -> None:
        """Notes what the stack holds where a jump leads."""
        effect = dis.stack_effect(step.opcode, step.arg, jump=True)
        size = max(len(self._stack) + effect, 0)
        there = [*self._stack, *[_UNKNOWN] * effect][:size]
        known = self._there.get(step.argval)
        self._there[step.argval] = there if known is None else _either(known, there)

    def _take(self) -> _Symbol:
        return self._stack.pop() if self._stack else _UNKNOWN

    def _use(self, symbol: _Symbol, *more: str) -> None:
        """Notes that something is read as it is, and no attribute of it."""
        for origin in _prolonged(symbol, more):
            if isinstance(origin, Source):
                self._read[origin] = None

    def _pop(self, count: int = 1) -> None:
        for _ in range(count):
            self._use(self._take())

    def _other(self, step: dis.Instruction) -> None:
        """Follows an instruction of which is known how much it pops and pushes, and no more."""
        effect = dis.stack_effect(step.opcode, step.arg, jump=False)
        self._pop(-effect)
        if self._stack and not step.opname.startswith(_LEAVE_THE_TOP):
            self._pop()
            self._stack.append(_UNKNOWN)
        self._stack += [_UNKNOWN] * effect

    def _skipped(self, step: dis.Instruction) -> None:
        """Follows an instruction that leaves the stack, or what is known of it, as it is."""

    def _locals(self, step: dis.Instruction) -> None:
        """Follows an instruction that loads or stores one or two local variables."""
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        kinds = [word for word in step.opname.split("_") if word in ("LOAD", "STORE")]
        for kind, name in zip(kinds, names, strict=False):
            if kind == "LOAD":
                self._stack.append((Source(name),))
            else:
                self._hold(name)

    def _load(self, step: dis.Instruction) -> None:
        self._stack.append((Source(step.argval),))

    def _store(self, step: dis.Instruction) -> None:
        self._hold(step.argval)

    def _hold(self, variable: str) -> None:
        symbol = self._take()
        self._use(symbol)
        if not isinstance(symbol, _Constant):
            self._held.setdefault(variable, {}).update(dict.fromkeys(symbol))

    def _load_constant(self, step: dis.Instruction) -> None:
        value = step.argval
        self._stack.append((value,) if isinstance(value, CodeType) else _Constant(value))

    def _load_null(self, step: dis.Instruction) -> None:
        del step
        self._stack.append(_NULL)

    def _load_global(self, step: dis.Instruction) -> None:
        loaded: _Symbol = (Source(step.argval),)
        if not (step.arg or 0) & 1:
            self._stack.append(loaded)
        else:
            self._stack += [loaded, _NULL] if _NULL_IS_LAST else [_NULL, loaded]

    def _load_attribute(self, step: dis.Instruction) -> None:
        self._stack.append(_prolonged(self._take(), (step.argval,)))
        if dis.stack_effect(step.opcode, step.arg, jump=False) > 0:
            self._stack.append(_NULL)  # in the place of a method's object

    def _store_attribute(self, step: dis.Instruction) -> None:
        self._assign(_prolonged(self._take(), (step.argval,)))
        self._pop()

    def _store_element(self, step: dis.Instruction) -> None:
        del step
        self._use(self._take())
        self._assign(self._take())
        self._pop()

    def _assign(self, symbol: _Symbol) -> None:
        """Notes that attributes are assigned, or are containers to which elements are added."""
        for origin in () if isinstance(symbol, _Constant) else symbol:
            if isinstance(origin, Source) and origin.path:
                self._assigned[_without_elements(origin)] = None

    def _subscript(self, step: dis.Instruction) -> None:
        del step
        key, container = self._take(), self._take()
        self._use(key)
        if isinstance(key, _Constant) and isinstance(key.value, str):
            by_name = _of_attributes(container)
            if by_name:
                self._stack.append(_prolonged(by_name, (key.value,)))
                return
        self._use(container, "__getitem__")
        self._stack.append(_prolonged(container, (EACH,)))

    def _build(self, step: dis.Instruction) -> None:
        elements = [self._take() for _ in range(step.arg or 0)]
        for element in elements:
            self._use(element)
        self._stack.append(_united(_prolonged(element, (_HELD,)) for element in elements))

    def _next_element(self, step: dis.Instruction) -> None:
        del step
        iterated = self._stack[-1] if self._stack else _UNKNOWN
        self._use(iterated)
        self._stack.append(_prolonged(iterated, (EACH,)))

    def _unpack(self, step: dis.Instruction) -> None:
        symbol = self._take()
        self._use(symbol)
        pairs = () if isinstance(symbol, _Constant) else tuple(filter(_is_element, symbol))
        parts = _united([pairs, _prolonged(symbol, (EACH,))])  # `name, layer` of .items()
        self._stack += [parts] * (1 + dis.stack_effect(step.opcode, step.arg, jump=False))

    def _copy(self, step: dis.Instruction) -> None:
        depth = step.arg or 1
        self._stack.append(self._stack[-depth] if depth <= len(self._stack) else _UNKNOWN)

    def _swap(self, step: dis.Instruction) -> None:
        depth, stack = step.arg or 1, self._stack
        stack[:0] = [_UNKNOWN] * (depth - len(stack))
        stack[-depth], stack[-1] = stack[-1], stack[-depth]

    def _make_function(self, step: dis.Instruction) -> None:
        function = self._take()
        self._pop(-dis.stack_effect(step.opcode, step.arg, jump=False))
        self._stack.append(function)

    def _name_keywords(self, step: dis.Instruction) -> None:
        self._keywords = self._code.co_consts[step.arg or 0]

    def _call(self, step: dis.Instruction) -> None:
        keywords, self._keywords = self._keywords, ()
        if step.opname == "CALL_KW":
            named = self._take()
            keywords = named.value if isinstance(named, _Constant) else ()
        arguments = [self._take() for _ in range(step.arg or 0)][::-1]
        upper, lower = self._take(), self._take()
        if lower is _NULL:
            called = upper
        else:
            called = lower
            if upper is not _NULL:  # what a comprehension goes through
                arguments.insert(0, upper)
        self._stack.append(self._result(called, arguments, keywords))

    def _result(
        self, called: _Symbol, arguments: list[_Symbol], keywords: tuple[str, ...]
    ) -> _Symbol:
        """Notes what a call reads and passes on, and returns what is known of its result."""
        name = _last_name(called)
        result = self._read_by(name, called, arguments)
        if result is not None:
            return result
        for argument in arguments:
            self._use(argument)
        if name in _ADD:
            self._assign(_shortened(called))
        if name in _PASS_ELEMENTS:
            return _united(arguments)
        if name in _TRANSFORM and arguments:
            return arguments[0]
        if name == "partial" and arguments:
            called, *arguments = arguments
        self._use(called, "__call__")
        labels = [*range(len(arguments) - len(keywords)), *keywords]
        callees = () if isinstance(called, _Constant) else called
        for label, argument in zip(labels, arguments, strict=False):
            for origin in () if isinstance(argument, _Constant) else argument:
                if isinstance(origin, Source):
                    self._calls.update(((callee, label, origin), None) for callee in callees)
        return _UNKNOWN

    def _read_by(self, name: str, called: _Symbol, arguments: list[_Symbol]) -> _Symbol | None:
        """Returns what a function of Python's reads of its argument; None for other functions."""
        if name in _READ_BY_NAME and len(arguments) > 1 and isinstance(arguments[1], _Constant):
            found = _prolonged(arguments[0], (str(arguments[1].value),))
            self._use(found if name == "hasattr" else _UNKNOWN)
            return found if name == "getattr" else _UNKNOWN
        if name == "vars" and len(arguments) == 1:
            return _prolonged(arguments[0], ("__dict__",))
        if name in _OF_MAPPINGS and not arguments:
            mappings = _shortened(called)
            self._use(mappings)
            return mappings
        return None


def _through(argument: Source, name: str | None, sources: Iterable[Source]) -> list[Source]:
    """Returns what is done with an argument, of what is done with the parameter of a name."""
    found = (prolonged(argument, one.path) for one in sources if one.variable == name)
    return [one for one in found if one is not None]


def _prolonged(symbol: _Symbol, more: Path) -> tuple[_Origin, ...]:
    if isinstance(symbol, _Constant):
        return _UNKNOWN
    if not more:
        return symbol
    found = (prolonged(one, more) for one in symbol if isinstance(one, Source))
    return tuple(one for one in found if one is not None)


def _shortened(symbol: _Symbol) -> tuple[_Origin, ...]:
    """Returns a symbol without the last attribute."""
    if isinstance(symbol, _Constant):
        return _UNKNOWN
    return tuple(
        Source(one.variable, one.path[:-1])
        for one in symbol
        if isinstance(one, Source) and one.path
    )


def _of_attributes(symbol: _Symbol) -> tuple[_Origin, ...]:
    """Returns the objects whose `__dict__` a symbol is."""
    return _shortened(symbol) if _last_name(symbol) == "__dict__" else _UNKNOWN


def _last_name(symbol: _Symbol) -> str:
    """Returns the name by which something was loaded last: `grad` for `jax.grad`."""
    if isinstance(symbol, _Constant) or len(symbol) != 1 or not isinstance(symbol[0], Source):
        return ""
    return (symbol[0].variable, *symbol[0].path)[-1]


def _is_element(origin: _Origin) -> bool:
    return isinstance(origin, Source) and origin.path[-1:] == (EACH,)


def _without_elements(source: Source) -> Source:
    """Returns a source without the elements at its end: those are read with what holds them."""
    variable, path = source
    while path and path[-1] in (EACH, _HELD):
        path = path[:-1]
    return Source(variable, path)


def _united(symbols: Iterable[_Symbol]) -> tuple[_Origin, ...]:
    found = {one: None for s in symbols if not isinstance(s, _Constant) for one in s}
    return tuple(found)[:_MOST_SOURCES]


def _either(here: list[_Symbol], there: list[_Symbol]) -> list[_Symbol]:
    """Returns what the stack may hold where two ways meet."""
    return [
        one if one == other else _united([one, other])
        for one, other in zip(here, there, strict=False)
    ]


_SUBSCRIPT: Final = _Reader._subscript
_HANDLERS: Final[dict[str, Callable[[_Reader, dis.Instruction], None]]] = {
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE", "LOAD_NAME"), _Reader._load),
    **dict.fromkeys(("STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"), _Reader._store),
    **dict.fromkeys(("LOAD_CONST", "LOAD_SMALL_INT", "RETURN_CONST"), _Reader._load_constant),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), _Reader._load_attribute),
    **dict.fromkeys(("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"), _Reader._make_function),
    **dict.fromkeys(("CALL", "CALL_KW"), _Reader._call),
    **dict.fromkeys(("BUILD_LIST", "BUILD_TUPLE"), _Reader._build),
    **dict.fromkeys(("UNPACK_SEQUENCE", "UNPACK_EX"), _Reader._unpack),
    **dict.fromkeys(("PRECALL", "GET_ITER", "CACHE"), _Reader._skipped),
    "BINARY_SUBSCR": _Reader._subscript,
    "COPY": _Reader._copy,
    "FOR_ITER": _Reader._next_element,
    "KW_NAMES": _Reader._name_keywords,
    "LOAD_GLOBAL": _Reader._load_global,
    "PUSH_NULL": _Reader._load_null,
    "STORE_ATTR": _Reader._store_attribute,
    "STORE_SUBSCR": _Reader._store_element,
    "SWAP": _Reader._swap,
}
