"""Running a function on all replicas: finding its program, or making it."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, final

import jax
import numpy as np

from distlab import events
from distlab.collectives.traced import local_part
from distlab.context import modes, scopes
from distlab.context.modes import RunOptions
from distlab.context.replica_context import ReplicaContext
from distlab.devices import jax_internals
from distlab.devices.jax_internals import ConcreteArray
from distlab.errors import ContextError
from distlab.events import sink
from distlab.step import compile_events, eager
from distlab.step.program import Program
from distlab.values.checks import checked_call
from distlab.variables.variable import is_variable

if TYPE_CHECKING:
    from distlab.strategies.abstract import Strategy

_FUNCTIONS_KEPT: Final = 256
_steps = itertools.count()


@final
class Runner:
    """Keeps a strategy's programs and runs them.

    Programs are kept for the last 256 functions, so that functions made anew
    for each step (lambdas in a loop) can't fill the memory.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._programs: OrderedDict[Any, dict[Any, Program]] = OrderedDict()

    def run(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, options: RunOptions | None
    ) -> Any:
        """Runs `fn` on every replica. See `Strategy.run`."""
        if options is not None or modes.functions_run_eagerly() or scopes.merging() is not None:
            return self._run_otherwise(fn, args, kwargs, options)
        return self._run_traced(fn, args, kwargs)

    def _run_otherwise(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, options: RunOptions | None
    ) -> Any:
        """Runs in a way that is not the fast one: as Python, or inside a trace."""
        scopes.require_cross_replica("run", self._strategy)
        together = scopes.merging()
        if together is not None:
            args, kwargs = local_part(checked_call("run", fn, args, kwargs))
            with scopes.replica(ReplicaContext(self._strategy, together)):
                return together.merged(fn(*args, **kwargs))
        if not modes.eager_asked_for(options):
            return self._run_traced(fn, args, kwargs, options)
        args, kwargs = checked_call("run", fn, args, kwargs)
        modes.donated_arguments(options, len(args))
        if jax_internals.being_staged() or any(
            isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, kwargs))
        ):
            raise ContextError(
                "run executes functions as ordinary Python now (run_functions_eagerly), which has "
                "no meaning inside a JAX transformation such as jit, grad, vmap or scan. Call run "
                "outside of it, or run_functions_eagerly(False)."
            )
        return eager.run(self._strategy, fn, args, kwargs)

    def _run_traced(
        self, fn: Callable[..., Any], args: Any, kwargs: Any, options: RunOptions | None = None
    ) -> Any:
        """Runs as one compiled program."""
        called = time.monotonic_ns()
        recorder = sink.recorder()
        program: Program | None = None
        leaves: list[Any] = []
        try:
            scopes.require_cross_replica("run", self._strategy)
            args, kwargs = checked_call("run", fn, args, kwargs)
            leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=is_variable)
            key, traced = _key(leaves)
            donated = modes.donated_arguments(options, len(args))
            programs = self._programs_of(fn)
            program = programs.get((structure, key, donated))
            if program is None:
                program = Program(fn, args, kwargs, self._strategy, donated)
            if traced and not jax_internals.being_transformed():
                raise ContextError(
                    "An argument of run was kept from inside a function that JAX transformed, "
                    "where it had no numbers. Return values from that function instead of "
                    "storing them."
                )
            if traced or jax_internals.being_staged():
                programs[structure, key, donated] = program
                return program.join(leaves)
            fresh = program.compiled is None
            result, watched = program(leaves)
        except Exception as error:
            if recorder.enabled:
                recorder.emit(_error(error))
            _require_alive(error, program, leaves)
            raise
        if recorder.enabled:
            if fresh:
                compile_events.announce(program, programs, self._strategy.number, recorder)
            step = next(_steps)
            recorder.emit(
                events.Step(
                    time_ns=called,
                    step=step,
                    program=program.number,
                    strategy=self._strategy.number,
                    dispatched_ns=time.monotonic_ns(),
                    examples=self._strategy.fed.examples(leaves),
                )
            )
            if watched is not None:
                recorder.watch(self._strategy.number, step, called, watched)
        if fresh:
            programs[structure, key, donated] = program
        return result

    def _programs_of(self, fn: Callable[..., Any]) -> dict[Any, Program]:
        key = _function_key(fn)
        programs = self._programs.get(key)
        if programs is None:
            programs = self._programs[key] = {}
            if len(self._programs) > _FUNCTIONS_KEPT:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(key)
        return programs


def _function_key(fn: Callable[..., Any]) -> Any:
    """Returns what tells functions apart: a method's object by identity, as it may have no hash."""
    if isinstance(fn, FunctionType):
        return fn
    if isinstance(fn, MethodType):
        return _Same(fn.__self__), fn.__func__
    try:
        hash(fn)
    except TypeError:
        return _Same(fn)
    return fn


def _key(leaves: list[Any]) -> tuple[tuple[Any, ...], bool]:
    """Returns what decides which program fits, and whether JAX is tracing a leaf."""
    key: list[Any] = []
    traced = False
    for leaf in leaves:
        if type(leaf) is ConcreteArray:
            key.append(leaf.aval)
        elif isinstance(leaf, np.ndarray):
            key.append((leaf.shape, leaf.dtype))
        elif isinstance(leaf, jax.core.Tracer):
            traced = True
            key.append((leaf.shape, leaf.dtype, getattr(leaf.aval, "weak_type", False)))
        elif isinstance(leaf, np.generic | bool | int | float | complex):
            key.append(type(leaf))
        else:
            key.append(_Same(leaf))
    return tuple(key), traced


class _Same:
    """A key for an object that is no array: that very object."""

    __slots__ = ("object",)

    def __init__(self, object_: Any) -> None:
        self.object = object_

    def __hash__(self) -> int:
        return hash(self.object) if isinstance(self.object, str) else id(self.object)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        mine, theirs = self.object, other.object
        return mine is theirs or (isinstance(mine, str) and mine == theirs)


def _require_alive(error: Exception, program: Program | None, leaves: list[Any]) -> None:
    """Says which argument was given away, where JAX only says that some array was deleted."""
    if program is not None and isinstance(error, RuntimeError):
        program.require_alive(leaves)


def _error(error: Exception) -> events.Error:
    return events.Error(
        time_ns=time.monotonic_ns(),
        where="run",
        type=type(error).__name__,
        message=str(error)[:2000],
    )
