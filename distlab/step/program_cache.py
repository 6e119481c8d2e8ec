"""The compiled programs of the functions that ran last, found by what a function is."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any, Final, final

from distlab.errors import RecompilationWarning
from distlab.step.function_identity import Identity, Key, changed_values, identity_of, references
from distlab.step.program import Program
from distlab.step.static_values import StaticKey, changed_parts
from distlab.user_code import warn
from distlab.values.checks import function_name, function_source

_FUNCTIONS_KEPT: Final = 256
_COMPILED_TOO_OFTEN: Final = 3
_VALUES_TOO_MANY: Final = 5
_PROGRAMS_KEPT: Final = 256


@final
class _Entry:
    """The programs of one function.

    Attributes:
      identity: What distinguishes the function.
      references: What it refers to, by name.
      programs: Its programs by the key of their arguments.
      uses: How often they were asked for.
      last_use: The number of the last time, counted over all functions.
    """

    __slots__ = ("identity", "last_use", "programs", "references", "uses")

    def __init__(self, identity: Identity, references: dict[str, Key]) -> None:
        self.identity = identity
        self.references = references
        self.programs: dict[Any, Program] = {}
        self.uses = 0
        self.last_use = 0


@final
class ProgramCache:
    """Keeps the programs of the last 256 functions.

    A function that is made anew at each call is the same one as long as its code is and what
    that refers to (see `function_identity`). So functions whose closures change can't fill the
    memory. Any thread may use the cache.
    """

    def __init__(self) -> None:
        self._by_key: dict[Key, _Entry] = {}
        self._by_object: OrderedDict[FunctionType, _Entry] = OrderedDict()
        self._by_source: OrderedDict[Hashable, list[_Entry]] = OrderedDict()
        self._uses = itertools.count(1)
        self._lock = threading.RLock()  # a signal handler may run a step while it is held

    def of(self, fn: Callable[..., Any]) -> dict[Any, Program]:
        """Returns a function's programs by the key of their arguments, to read and add to.

        A function object is looked up by itself, as by `jax.jit`; only an object that was not
        seen before is compared with others.

        Warns:
          RecompilationWarning: The function is made anew at each call, and a number or array
            that it refers to changes each time, so that this is the third compilation for one
            call each.
        """
        warning = None
        with self._lock:
            entry = None
            if isinstance(fn, FunctionType) and fn in self._by_object:
                entry = self._by_object[fn]
                self._by_object.move_to_end(fn)
            if entry is None:
                entry, warning = self._find(fn)
            entry.uses += 1
            entry.last_use = next(self._uses)
        if warning is not None:
            warn(warning, RecompilationWarning)
        return entry.programs

    def _find(self, fn: Callable[..., Any]) -> tuple[_Entry, str | None]:
        identity = identity_of(fn)
        entry = self._by_key.get(identity.key)
        warning = None
        if entry is None:
            entry = _Entry(identity, references(fn))
            warning = self._warning(fn, entry)
            if len(self._by_key) >= _FUNCTIONS_KEPT:
                self._forget(min(self._by_key.values(), key=lambda known: known.last_use))
            self._by_key[identity.key] = entry
        if isinstance(fn, FunctionType):
            self._by_object[fn] = entry
        for kept in (self._by_object, self._by_source):
            if len(kept) > _FUNCTIONS_KEPT:
                kept.popitem(last=False)
        return entry, warning

    def changed_references(self, fn: Callable[..., Any]) -> str:
        """Returns what changed of that to which a function made anew refers; empty if unknown."""
        family = self._by_source.get(_source_of(fn), [])
        if len(family) < 2:
            return ""
        before, after = family[-2:]
        return "; ".join(changed_values(before.references, after.references))[:400]

    def _forget(self, entry: _Entry) -> None:
        del self._by_key[entry.identity.key]
        for fn in [fn for fn, known in self._by_object.items() if known is entry]:
            del self._by_object[fn]

    def _warning(self, fn: Callable[..., Any], entry: _Entry) -> str | None:
        """Returns what to warn of when a function of one source is compiled for each call."""
        family = self._by_source.setdefault(_source_of(fn), [])
        if len(family) >= _COMPILED_TOO_OFTEN:
            return None  # it was said
        family.append(entry)
        if len(family) < _COMPILED_TOO_OFTEN or any(old.uses > 1 for old in family):
            return None
        changed = changed_values(family[-2].references, entry.references)
        if not changed:
            return None
        return (
            f"{function_name(fn)} was compiled {len(family)} times for {len(family)} calls of run: "
            "it is made anew for each call, and what it refers to changes "
            f"({'; '.join(changed)[:400]}). Pass that as an argument, in args=(...)."
        )


def _source_of(fn: Callable[..., Any]) -> tuple[type, str, str]:
    return type(fn), function_name(fn), function_source(fn)


def keep(programs: dict[Any, Program], key: tuple[Any, ...], program: Program) -> None:
    """Adds a program to those of its function, of which the last 256 are kept.

    One that holds a value that JAX is tracing serves for this call alone, and is not kept.

    Args:
      programs: The function's programs.
      key: The structure of the program's arguments, the keys of their leaves, the positions of
        donated ones, and JAX's configuration.
      program: The program.

    Warns:
      RecompilationWarning: It is the fifth one that differs from others only in the values of
        arguments that are no arrays, strings, bools and None left out.
    """
    if program.spmd.outside:
        return
    known = key in programs
    if not known and len(programs) >= _PROGRAMS_KEPT:
        del programs[next(iter(programs))]
    programs[key] = program
    if known:
        return
    structure, leaves, *rest = key
    if not any(isinstance(leaf, StaticKey) for leaf in leaves):
        return
    arrays = _dynamic(leaves)
    alike = [
        other
        for its_structure, other, *its_rest in programs
        if its_structure == structure and its_rest == rest and _dynamic(other) == arrays
    ]
    if len(alike) != _VALUES_TOO_MANY:
        return
    changed = [
        f"{argument.label}{change}"
        for argument, before, after in zip(
            program.arguments.leaves, alike[-2], alike[-1], strict=True
        )
        if before != after
        for change in changed_parts(before, after, modes=False)
    ]
    if not changed:
        return
    warn(
        f"{program.function} was compiled for {_VALUES_TOO_MANY} values of arguments that are no "
        f"arrays ({'; '.join(changed)[:400]}). Each new value compiles it again: pass numbers that "
        "change as they are, without static_argnums and static_argnames, and hold what an object "
        "counts in an argument of its own.",
        RecompilationWarning,
    )


def _dynamic(leaves: tuple[Any, ...]) -> list[Any]:
    return [None if isinstance(leaf, StaticKey) else leaf for leaf in leaves]
