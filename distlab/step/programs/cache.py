"""The compiled programs of the functions that ran last, found by what a function is."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from types import FunctionType
from typing import Any, Final, NamedTuple, final
from weakref import WeakKeyDictionary, ref

from distlab.errors import RecompilationWarning
from distlab.step.changed_values import changed_values
from distlab.step.functions.identity import Identity, identity_of, references
from distlab.step.functions.keys import Key
from distlab.step.functions.statics import StaticKey, changed_parts
from distlab.step.named_variables import NamedVariables
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
    """The programs of one function, by the key of their arguments.

    They hold the variables that they use, and nothing but those variables may hold them: who drops
    a model, and the step that trained it, gets its memory back. Of several variables the one that
    was made last holds them.

    Attributes:
      identity: What distinguishes the function.
      references: What it refers to, by name.
      uses: How often they were asked for.
      last_use: The number of the last time, counted over all functions.
    """

    __slots__ = ("__weakref__", "_holder", "identity", "last_use", "references", "uses")

    def __init__(
        self, identity: Identity, references: dict[str, Key], holder: dict[int, object]
    ) -> None:
        super().__init__()
        self.identity = identity
        self.references = references
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


class _Seen(NamedTuple):
    """What is known of a function object.

    Attributes:
      programs: Its programs.
      variables: The variables that it named when they were found.
    """

    programs: ref[FunctionPrograms]
    variables: NamedVariables


@final
class ProgramCache:
    """Keeps the programs of the last 256 functions, and no longer than the variables that they use.

    A function that is made anew at each call is the same one as long as its code is and what
    that refers to (see `function_identity`). So functions whose closures change can't fill the
    memory. Any thread may use the cache.
    """

    def __init__(self) -> None:
        # Not by the keys themselves: the classes in them may hold variables, too.
        self._by_hash: dict[int, list[ref[FunctionPrograms]]] = {}
        self._by_object: WeakKeyDictionary[FunctionType, _Seen] = WeakKeyDictionary()
        self._without_variables: dict[int, object] = {}
        self._by_source: OrderedDict[Hashable, list[ref[FunctionPrograms]]] = OrderedDict()
        self._calls = itertools.count(1)
        self._lock = threading.RLock()  # a signal handler may run a step while it is held

    def of(self, fn: Callable[..., Any]) -> FunctionPrograms:
        """Returns a function's programs, to read and add to.

        A function object is looked up by itself, as by `jax.jit`; only an object that was not
        seen before, or that names variables which were made again, is compared with others.
        """
        warning = None
        with self._lock:
            known = self._by_object.get(fn) if isinstance(fn, FunctionType) else None
            programs = None if known is None else known.programs()
            if programs is None or known is None or known.variables.were_made_again():
                programs, warning = self._find(fn)
            programs.uses += 1
            programs.last_use = next(self._calls)
        if warning is not None:
            warn(warning, RecompilationWarning)
        return programs

    def _find(self, fn: Callable[..., Any]) -> tuple[FunctionPrograms, str | None]:
        identity = identity_of(fn)
        alike = self._by_hash.get(hash(identity.key), [])
        programs = next((one for one in _alive(alike) if one.identity.key == identity.key), None)
        warning = None
        if programs is None:
            self._make_room()
            programs = FunctionPrograms(identity, references(fn), self._without_variables)
            warning = self._warning(fn, programs)
            self._by_hash.setdefault(hash(identity.key), []).append(ref(programs))
        if isinstance(fn, FunctionType):
            self._by_object[fn] = _Seen(ref(programs), NamedVariables(fn))
        if len(self._by_source) > _FUNCTIONS_KEPT:
            self._by_source.popitem(last=False)
        return programs, warning

    def changed_references(self, fn: Callable[..., Any]) -> str:
        """Returns what changed of that to which a function made anew refers; empty if unknown."""
        family = _alive(self._by_source.get(_source_of(fn), []))
        if len(family) < 2:
            return ""
        before, after = family[-2:]
        return "; ".join(changed_values(before.references, after.references))[:400]

    def _make_room(self) -> None:
        """Forgets the programs that were not used for longest, if there are too many."""
        alive = sorted(_alive(itertools.chain(*self._by_hash.values())), key=lambda p: p.last_use)
        for programs in alive[: 1 - _FUNCTIONS_KEPT]:
            programs.drop()
            for fn in [fn for fn, seen in self._by_object.items() if seen.programs() is programs]:
                del self._by_object[fn]
        self._by_hash = {}
        for programs in alive[1 - _FUNCTIONS_KEPT :]:
            self._by_hash.setdefault(hash(programs.identity.key), []).append(ref(programs))

    def _warning(self, fn: Callable[..., Any], programs: FunctionPrograms) -> str | None:
        """Returns what to warn of when a function of one source is compiled for each call."""
        known = self._by_source.setdefault(_source_of(fn), [])
        if len(known) >= _COMPILED_TOO_OFTEN:
            return None  # it was said
        known.append(ref(programs))
        family = _alive(known)  # those whose variables are gone are of other trainings
        if len(family) < _COMPILED_TOO_OFTEN or any(old.uses > 1 for old in family):
            return None
        changed = changed_values(family[-2].references, programs.references)
        if not changed:
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


def keep(programs: FunctionPrograms, key: tuple[Any, ...], program: Program) -> None:
    """Adds a program to those of its function, of which the last 256 are kept.

    One that holds a value that JAX is tracing serves for this call alone, and is not kept.
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
