"""Running a function on all replicas: as one compiled program, or as ordinary Python."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from distlab import events
from distlab.collectives.host import CollectiveHost
from distlab.collectives.traced import local_part
from distlab.context import modes, scopes
from distlab.context.collectives import MergingCollectives
from distlab.context.modes import RunOptions
from distlab.context.replica_context import ReplicaContext
from distlab.devices import in_flight, jax_internals
from distlab.devices.callbacks import require_no_callback
from distlab.devices.interrupts import interruptible
from distlab.devices.jax_internals import ConcreteArray
from distlab.errors import ContextError
from distlab.events import sink
from distlab.processes import failures
from distlab.step.arguments import in_place, in_use
from distlab.step.chosen_arguments import Chosen, chosen_arguments
from distlab.step.eager import events as eager_events
from distlab.step.eager import run as eager
from distlab.step.functions.statics import Static, is_static, static_key
from distlab.step.programs import events as compile_events
from distlab.step.programs.cache import FunctionPrograms, keep
from distlab.step.programs.inputs import NotWholeError
from distlab.step.programs.other_meshes import require_not_mapped
from distlab.step.programs.place import Place
from distlab.step.programs.program import Program
from distlab.step.programs.results import undeclared
from distlab.step.received import accepted
from distlab.step.review.copies import examined
from distlab.step.review.last_results import watched
from distlab.step.used_up import flattened, held
from distlab.text.shown import shown_text
from distlab.user_code import warn
from distlab.values import stacks
from distlab.values.checks import checked_call, is_array_like
from distlab.values.distributed import DistributedValues, Mirrored
from distlab.values.nests import require_nest
from distlab.variables.protocol import StoredVariable

_steps = itertools.count()


@interruptible
def run(
    host: CollectiveHost,
    place: Place,
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    *,
    options: RunOptions | None,
    alone: bool = False,
) -> Any:
    """Runs `fn` on every replica. See `Strategy.run`."""
    use = in_use.Use()
    try:
        return _run(host, place, fn, args, kwargs, options=options, use=use, alone=alone)
    finally:
        if in_use.present.pop(use, False):
            in_use.tell()


def _run(
    host: CollectiveHost,
    place: Place,
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    *,
    options: RunOptions | None,
    use: in_use.Use,
    alone: bool,
) -> Any:
    """Runs `fn`, with the objects among its arguments in use from when they are read."""
    called = time.monotonic_ns()
    in_flight.note_thread()
    try:
        require_no_callback("run was called")
        scopes.require_cross_replica("run", host)
        args, kwargs = checked_call("run", fn, args, kwargs)
        require_nest(args, "args")
        require_nest(kwargs, "kwargs")
        eagerly = modes.eager_asked_for(options)
        chosen = chosen_arguments(options, fn, args, kwargs)
        merging = scopes.merging()
        taken = None
        if merging is None:
            given, named = (args, kwargs) if eagerly else (chosen.args, chosen.kwargs)
            taken = in_place.taken(fn, given, named, use)
    except Exception as error:
        _report(error)
        raise
    if merging is not None:
        return _run_merging(host, merging, fn, args, kwargs)
    if taken is not None:
        args, kwargs = taken.args, taken.kwargs
        chosen = Chosen(args, kwargs, chosen.donated)
    if eagerly:
        with in_flight.dispatching if alone else contextlib.nullcontext():
            result = _run_eagerly(host, place, fn, args, kwargs, called=called)
    else:
        result = _run_traced(host, place, fn, chosen, called=called)
    return result if taken is None else taken.updated(result)


def _run_merging(
    host: CollectiveHost,
    merging: MergingCollectives,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Runs as part of the `merge_call` that is being traced."""
    args, kwargs = local_part((args, kwargs))
    with scopes.replica(ReplicaContext(host, merging)):
        return merging.merged(undeclared(fn(*args, **kwargs)))


def _run_eagerly(
    host: CollectiveHost,
    place: Place,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    called: int,
) -> Any:
    """Runs as ordinary Python, once for each replica."""
    args, kwargs = accepted(fn, args, kwargs, host.mesh, compiled=False)
    holds = False
    try:
        leaves = jax.tree.leaves((args, kwargs))
    except DeprecationWarning:  # warnings are errors, and an argument is an iterator
        args, kwargs = held((args, kwargs))
        leaves, holds = jax.tree.leaves((args, kwargs)), True
    if jax_internals.being_transformed():
        raise ContextError(
            "run executes functions as ordinary Python (run_functions_eagerly), which has no "
            "meaning inside a JAX transformation such as jit, grad, vmap or scan. Call run "
            "outside of it, or call run_functions_eagerly(False)."
        )
    in_flight.require_open()
    if not sink.recorder().enabled:
        return eager.run(host, fn, args, kwargs, holds=holds)
    watch = eager_events.watch_of(place, fn)
    watch.before()
    assigned: dict[StoredVariable, str] = {}
    result = eager.run(host, fn, args, kwargs, assigned, holds=holds)
    watch.after(place, leaves, result, step=next(_steps), called=called, assigned=assigned)
    return result


def _run_traced(
    host: CollectiveHost,
    place: Place,
    fn: Callable[..., Any],
    chosen: Chosen,
    *,
    called: int,
) -> Any:
    """Runs as one compiled program."""
    program: Program | None = None
    call = _Call((), [], traced=False)
    try:
        call = _call(chosen)
        if call.traced and not jax_internals.being_transformed():
            raise ContextError(
                "An argument of run was kept from inside a function that JAX transformed, "
                "where it had no numbers. Return values from that function instead of "
                "storing them."
            )
        if jax_internals.being_transformed():
            require_not_mapped()
        programs = place.programs.of(fn)
        staged = call.traced or jax_internals.being_staged()
        program = None if staged else programs.get(call.key)
        if program is None or program.captured is not None:
            call, program = _program(host, programs, fn, chosen)
        if staged or program.spmd.outside:
            keep(programs, call.key, program)
            return program.inline(call.leaves)
        fresh = program.compiled is None
        try:
            result, marker = program(call.leaves)
        except NotWholeError:
            call, program = _program(host, programs, fn, chosen)
            fresh = program.compiled is None
            result, marker = program(call.leaves)
    except Exception as error:
        _report(error)
        _require_alive(error, program, call.leaves)
        failures.explain(error)
        raise
    if sink.recorder().enabled:
        if fresh:
            _report_compiled(program, programs, place, fn, (call.leaves, result))
        examples = place.batch.examples_among(call.leaves)
        step = _recorded(program, place.number, examples, marker, called)
        _kept(program, place.number, result, step, fresh=fresh)
    if fresh:
        keep(programs, call.key, program)
    return result


def _report_compiled(
    program: Program,
    programs: FunctionPrograms,
    place: Place,
    fn: Callable[..., Any],
    of_first_step: tuple[list[Any], Any],
) -> None:
    """Emits the event of a program that was compiled. The step has run, whatever fails here."""
    recorder = sink.recorder()
    try:
        doubts = examined(program, place.number, *of_first_step)
        referred = place.programs.changed_references(fn)
        compile_events.emit(
            program, programs, place.number, doubts, referred=referred, recorder=recorder
        )
    except Exception as error:  # noqa: BLE001 - of any new version of JAX
        reason = (
            f"The program of {program.function} could not be examined, so pages and advice lack "
            f"it: {type(error).__name__}: {error}. The step has run."
        )
        recorder.emit(events.Lost(time_ns=time.monotonic_ns(), count=1, reason=reason[:2_000]))
        warn(reason, RuntimeWarning)


def _recorded(
    program: Program, strategy: int, examples: int, marker: jax.Array | None, called: int
) -> int:
    """Emits a step and returns its number."""
    recorder = sink.recorder()
    step = next(_steps)
    recorder.emit(
        events.Step(
            time_ns=called,
            step=step,
            program=program.number,
            strategy=strategy,
            dispatched_ns=time.monotonic_ns(),
            examples=examples,
        )
    )
    if marker is not None:
        recorder.watch(strategy, step, called, marker)
    return step


def _kept(program: Program, strategy: int, result: Any, step: int, *, fresh: bool) -> None:
    """Notes what a step left, for looks at later steps and programs."""
    if program.alike_leaves:
        arrays = jax.tree.leaves(result)
        for position in program.alike_leaves:
            stacks.remember_equal_rows(arrays[position])
    if program.copies is not None:
        program.copies.keep(result, step)
    if program.results is not None:
        program.results.keep(step)
    elif fresh:
        program.results = watched(program, strategy)


class _Call(NamedTuple):
    """The arguments of one call.

    Attributes:
      key: The key of their program.
      leaves: The flat arguments.
      traced: Whether JAX is tracing a leaf.
    """

    key: tuple[Any, ...]
    leaves: list[Any]
    traced: bool


def _call(chosen: Chosen) -> _Call:
    leaves, structure = flattened((chosen.args, chosen.kwargs))
    key, traced = _key(leaves)
    configuration = jax_internals.configuration()
    return _Call((structure, key, chosen.donated, configuration), leaves, traced)


def _program(
    host: CollectiveHost, programs: FunctionPrograms, fn: Callable[..., Any], chosen: Chosen
) -> tuple[_Call, Program]:
    """Returns the program for arguments that were not seen before, or need another look."""
    args, kwargs = accepted(fn, chosen.args, chosen.kwargs, host.mesh)
    chosen = Chosen(args, kwargs, chosen.donated)
    call = _call(chosen)
    program = programs.get(call.key)
    outdated = None
    if program is not None and program.captured is not None and program.captured.changed():
        outdated, program = programs.pop(call.key).captured, None
    # A state that goes in as arrays comes back as mirrored values, and is the same to a program.
    plain = _call(_without_mirrored(chosen)).key
    if program is None and outdated is None and plain in programs:
        known = programs[plain]
        if known.captured is None:
            program = programs[call.key] = known
    if program is None:
        program = Program(fn, args, kwargs, host, chosen.donated)
        if outdated is not None and program.captured is not None:
            program.captured.follow(outdated)
    if plain != call.key and program.captured is None and not program.spmd.outside:
        programs[plain] = program
    return call, program


def _without_mirrored(chosen: Chosen) -> Chosen:
    args, kwargs = jax.tree.map(
        lambda leaf: leaf.array if type(leaf) is Mirrored else leaf,
        (chosen.args, chosen.kwargs),
        is_leaf=lambda leaf: isinstance(leaf, DistributedValues),
    )
    return Chosen(args, kwargs, chosen.donated)


def _key(leaves: list[Any]) -> tuple[tuple[Any, ...], bool]:
    """Returns the key of these arguments' program, and whether JAX is tracing a leaf."""
    key: list[Any] = []
    traced = False
    for leaf in leaves:
        if type(leaf) is ConcreteArray:  # wherever it is: the inputs are placed on the mesh
            aval = leaf.aval
            key.append((aval.shape, aval.dtype, aval.weak_type))
        elif isinstance(leaf, np.ndarray) and is_array_like(leaf):
            key.append((leaf.shape, leaf.dtype, False))
        elif isinstance(leaf, jax.core.Tracer):
            traced = True
            weak = getattr(leaf.aval, "weak_type", False)
            key.append(("traced", leaf.shape, leaf.dtype, weak))
        elif isinstance(leaf, jax.Array):  # random keys
            key.append((leaf.shape, leaf.dtype))
        elif type(leaf) is Static:
            key.append(static_key(leaf.value))
        elif is_static(leaf):
            key.append(static_key(leaf))
        elif type(leaf) in (int, float, complex):
            # As the array that a step makes of it: a state may begin with a Python number.
            kind: Any = type(leaf)
            key.append(_number_key(kind, x64=jax.config.read("jax_enable_x64")))
        else:
            key.append(type(leaf))
    return tuple(key), traced


@functools.cache
def _number_key(kind: Any, *, x64: bool) -> tuple[Any, ...]:
    del x64  # decides about the dtype
    return (), jnp.result_type(kind), True


def _require_alive(error: Exception, program: Program | None, leaves: list[Any]) -> None:
    """Raises an error that names a donated argument, where JAX reports a deleted array."""
    if program is not None and isinstance(error, RuntimeError):
        program.inputs.require_alive(leaves)


def _report(error: Exception) -> None:
    """Emits that a call of `run` raised."""
    recorder = sink.recorder()
    if recorder.enabled:
        recorder.emit(
            events.Error(
                time_ns=time.monotonic_ns(),
                where="run",
                type=type(error).__name__,
                message=shown_text(error)[:2000],
            )
        )
