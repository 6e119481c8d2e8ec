"""The compiled programs of the functions that ran last, found by the functions' identity."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, final
from weakref import ref

from distlab.errors import RecompilationWarning
from distlab.step.arguments.call import Key
from distlab.step.functions.identity import (
    Identity,
    Reference,
    are_of_one_training,
    changes,
    key_of,
    references,
    static_of,
)
from distlab.step.functions.names import is_as_it_was, named
from distlab.step.programs.program import Program
from distlab.user_code import warn
from distlab.values.checks import function_name, function_source
from distlab.variables.variable import dependents_of_youngest

_FUNCTIONS_KEPT: Final = 256
_COMPILED_TOO_OFTEN: Final = 3
_VALUES_TOO_MANY: Final = 5
_PROGRAMS_KEPT: Final = 256


@final
class FunctionPrograms(dict[Any, Program]):
    """The programs of one function, by the key of a call.

    They hold the variables that they use, and nothing but those variables may hold them: who drops
    a model, and the step that trained it, gets its memory back. Of several variables the one that
    was made last holds them.
    """

    __slots__ = (
        *("__weakref__", "_holder", "identity", "last_use", "named", "references", "uses"),
    )

    def __init__(
        self, fn: Callable[..., Any], identity: Identity, holder: dict[int, object]
    ) -> None:
        super().__init__()
        self.identity = identity
        self.references: dict[str, Reference] = references(fn)
        self.named = named(fn)
        self.uses = 0
        self.last_use = 0
        self._holder = holder
        holder[id(self)] = self

    def __setitem__(self, key: Any, program: Program) -> None:
        """Adds a program; the last variable that it uses holds the programs from then on."""
        super().__setitem__(key, program)
        used = [v for known in self.values() for v in (*known.spmd.read, *known.spmd.written)]
        if used:
            self.drop()
            self._holder = dependents_of_youngest(used)
            self._holder[id(self)] = self

    def drop(self) -> None:
        """Gives them up, unless a step holds them that runs."""
        self._holder.pop(id(self), None)


@final
class ProgramCache:
    """The programs of the last 256 functions, kept no longer than the variables that they use."""

    def __init__(self) -> None:
        # Not by the keys themselves: objects in them may hold variables, too.
        self._by_hash: dict[int, list[ref[FunctionPrograms]]] = {}
        self._without_variables: dict[int, object] = {}
        self._by_source: OrderedDict[Hashable, list[ref[FunctionPrograms]]] = OrderedDict()
        self._calls = itertools.count(1)
        self._lock = threading.RLock()  # a signal handler may run a step while it is held

    def of(self, fn: Callable[..., Any]) -> FunctionPrograms:
        """Returns a function's programs; warns of a third compilation for one call each."""
        kept: list[Any] = []
        key = key_of(fn, kept)
        warning = None
        with self._lock:
            programs = self._of_key(key)
            if programs is not None and not all(map(is_as_it_was, programs.named)):
                programs.drop()
                self._forget(programs)
                programs = None
            if programs is None:
                programs, warning = self._made(fn, Identity(key, kept))
            programs.uses += 1
            programs.last_use = next(self._calls)
        if warning is not None:
            warn(warning, RecompilationWarning)
        return programs

    def newest(self, fn: Callable[..., Any]) -> Program | None:
        """Returns the program of a function that was compiled last; None for a function unknown."""
        with self._lock:
            programs = self._of_key(key_of(fn, []))
        return None if programs is None else next(reversed(programs.values()), None)

    def all(self) -> list[Program]:
        """Returns the programs of all functions, those of one function in their order."""
        with self._lock:
            known = _alive(itertools.chain(*self._by_hash.values()))
        return [program for programs in known for program in programs.values()]

    def _of_key(self, key: Any) -> FunctionPrograms | None:
        known = _alive(self._by_hash.get(hash(key), ()))
        return next((one for one in known if one.identity.key == key), None)

    def _made(
        self, fn: Callable[..., Any], identity: Identity
    ) -> tuple[FunctionPrograms, str | None]:
        self._make_room()
        programs = FunctionPrograms(fn, identity, self._without_variables)
        warning = self._warning(fn, programs)
        self._by_hash.setdefault(hash(identity.key), []).append(ref(programs))
        if len(self._by_source) > _FUNCTIONS_KEPT:
            self._by_source.popitem(last=False)
        return programs, warning

    def _forget(self, programs: FunctionPrograms) -> None:
        number = hash(programs.identity.key)
        self._by_hash[number] = [one for one in self._by_hash[number] if one() is not programs]

    def changed_references(self, fn: Callable[..., Any]) -> str:
        """Returns what changed of that to which a function made anew refers; empty if unknown."""
        family = _alive(self._by_source.get(_source_of(fn), []))
        if len(family) < 2:
            return ""
        before, after = family[-2:]
        return "; ".join(changes(before.references, after.references))[:400]

    def _make_room(self) -> None:
        """Forgets the programs that were not used for longest, if there are too many."""
        alive = sorted(_alive(itertools.chain(*self._by_hash.values())), key=lambda p: p.last_use)
        for programs in alive[: 1 - _FUNCTIONS_KEPT]:
            programs.drop()
        self._by_hash = {}
        for programs in alive[1 - _FUNCTIONS_KEPT :]:
            self._by_hash.setdefault(hash(programs.identity.key), []).append(ref(programs))

    def _warning(self, fn: Callable[..., Any], programs: FunctionPrograms) -> str | None:
        """Returns the warning for a function of one source that is compiled for each call."""
        known = self._by_source.setdefault(_source_of(fn), [])
        if len(known) >= _COMPILED_TOO_OFTEN:
            return None  # the warning was given
        known.append(ref(programs))
        family = _alive(known)  # those whose variables are gone are of other trainings
        if len(family) < _COMPILED_TOO_OFTEN or any(old.uses > 1 for old in family):
            return None
        changed = changes(family[-2].references, programs.references)
        trainings = [are_of_one_training(old.references, programs.references) for old in family]
        if not changed or not all(trainings):
            return None
        return (
            f"{function_name(fn)} was compiled {len(family)} times for {len(family)} calls of run: "
            "it is made anew for each call, and what it refers to changes "
            f"({'; '.join(changed)[:400]}). Pass that as an argument, in args=(...)."
        )


def _alive(references: Iterable[ref[FunctionPrograms]]) -> list[FunctionPrograms]:
    return [programs for one in references if (programs := one()) is not None]


def _source_of(fn: Callable[..., Any]) -> Hashable:
    return type(fn).__qualname__, function_name(fn), function_source(fn)


def keep(programs: FunctionPrograms, key: Key, program: Program) -> None:
    """Adds a program to those of its function, of which the last 256 are kept."""
    if program.spmd.outside:
        return
    known = key in programs
    if not known and len(programs) >= _PROGRAMS_KEPT:
        del programs[next(iter(programs))]
    programs[key] = program
    values = [leaf.label for leaf in program.arguments.leaves if _is_value(leaf)]
    if known or not values:
        return
    kind = _without_values(key)
    alike = sum(_without_values(other) == kind for other in programs)
    # Where programs are used again, the values are those of a few buckets.
    if alike == _VALUES_TOO_MANY and programs.uses <= _VALUES_TOO_MANY:
        warn(
            f"{program.function} was compiled for {_VALUES_TOO_MANY} values of arguments that are "
            f"no arrays ({', '.join(values)[:400]}). Each new value compiles it again: pass "
            "numbers that change as arrays, without static_argnums and static_argnames, and "
            "objects that define equality and a hash.",
            RecompilationWarning,
        )


def _is_value(leaf: Any) -> bool:
    """Returns whether a static argument, or its key, is no flag or name, of which few exist."""
    return not isinstance(leaf.value, bool | str | bytes | None)


def _without_values(key: Key) -> tuple[Any, ...]:
    structure, leaves, *rest = key
    statics = map(static_of, leaves)
    return (
        structure,
        *rest,
        *[
            None if static is not None and _is_value(static) else leaf
            for static, leaf in zip(statics, leaves, strict=True)
        ],
    )
