"""`Strategy.run`: a call goes in, a result comes out, in one of three ways."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax

from distlab.collectives.host import CollectiveHost
from distlab.collectives.traced import local_part
from distlab.context import modes, scopes
from distlab.context.collectives import MergingCollectives
from distlab.context.modes import RunOptions
from distlab.context.replica_context import ReplicaContext
from distlab.devices import in_flight, jax_internals
from distlab.devices.requirements import require_no_callback
from distlab.errors import ContextError
from distlab.events import sink
from distlab.processes import boundary
from distlab.step.arguments import in_place, in_use
from distlab.step.arguments.call import Call
from distlab.step.arguments.conversion import converted
from distlab.step.eager import events as eager_events
from distlab.step.eager import run as eager
from distlab.step.programs import calls
from distlab.step.programs import events as compile_events
from distlab.step.programs.cache import FunctionPrograms, keep
from distlab.step.programs.inputs import NotWholeError
from distlab.step.programs.place import Place
from distlab.step.programs.program import Program
from distlab.step.programs.results import undeclared
from distlab.step.review.copies import examined
from distlab.step.review.last_results import watched
from distlab.values import stacks
from distlab.values.checks import checked_call, require_plain
from distlab.variables.protocol import StoredVariable


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
    """Runs `fn` on every replica, at the place of the calling thread. See `Strategy.run`.

    With `alone`, steps of other threads wait for a function that runs eagerly.
    """
    called = calls.begin()
    use = None
    try:
        if threading.get_ident() not in in_flight.threads:
            require_no_callback("run was called")
            in_flight.note_thread()
        merging = scopes.entered("run", host)
        if options is None:  # without a call, as in each step
            eagerly = modes.eagerly or modes.jax_config.jax_disable_jit
        else:
            eagerly = modes.eager_asked_for(options)
        if merging is None and not in_place.offered.keys().isdisjoint(sys.modules.keys()):
            use = in_use.Use()
        call = Call(fn, args, {} if kwargs is None else kwargs, options, use, eagerly=eagerly)
        if merging is not None:
            return _run_merging(host, merging, call)
        if not eagerly:
            result = _run_compiled(host, place, call, called)
        else:
            with in_flight.dispatching if alone else contextlib.nullcontext():
                result = _run_eagerly(host, place, call, called)
        return result if call.taken is None else call.taken.updated(result)
    except BaseException as error:
        try:
            boundary.settle(error)
        except Exception as cause:
            _report(cause)
            raise
        if isinstance(error, Exception):
            _report(error)
        raise
    finally:
        if use is not None and in_use.present.pop(use, False):
            in_use.wake()


@boundary.verb
def _run_merging(host: CollectiveHost, merging: MergingCollectives, call: Call) -> Any:
    """Runs as part of the `merge_call` that is being traced."""
    args, kwargs = local_part((call.args, call.kwargs))
    with scopes.replica(ReplicaContext(host, merging)):
        return merging.merged(undeclared(call.fn(*args, **kwargs)))


@boundary.verb
def _run_eagerly(host: CollectiveHost, place: Place, call: Call, called: int) -> Any:
    """Runs as ordinary Python, once for each replica."""
    checked_call("run", call.fn, call.args, call.kwargs)
    args, kwargs = converted(call.fn, call.args, call.kwargs, host.mesh, compiled=False)
    if jax_internals.being_transformed():
        raise ContextError(
            "run executes functions as ordinary Python (run_functions_eagerly), which has no "
            "meaning inside a JAX transformation such as jit, grad, vmap or scan. Call run "
            "outside of it, or call run_functions_eagerly(False)."
        )
    in_flight.require_open()
    if not sink.recorder().enabled:
        return eager.run(host, call.fn, args, kwargs)
    watch = eager_events.watch_of(place, call.fn)
    watch.before()
    assigned: dict[StoredVariable, str] = {}
    result = eager.run(host, call.fn, args, kwargs, assigned)
    leaves = jax.tree.leaves((args, kwargs))
    watch.after(place, leaves, result, called=called, assigned=assigned)
    return result


def _run_compiled(host: CollectiveHost, place: Place, call: Call, called: int) -> Any:
    """Runs as one compiled program."""
    programs = place.programs.of(call.fn)
    staged = call.traced or (jax_internals.being_transformed() and jax_internals.being_staged())
    program = None if staged else programs.get(call.key)
    if program is None or program.captured is not None:
        call, program = _program(host, programs, call)
    if staged or program.spmd.outside:
        keep(programs, call.key, program)
        return program.inline(call.leaves)
    fresh = program.compiled is None
    try:
        result, marker = program(call.leaves)
    except NotWholeError:
        call, program = _program(host, programs, call)
        fresh = program.compiled is None
        result, marker = program(call.leaves)
    if program.arguments.has_texts:
        result = program.arguments.with_texts(result, call.args, call.kwargs)
    recorder = sink.in_force or sink.recorder()
    if recorder.enabled:
        _record(recorder, place, programs, program, call, result, marker, called, fresh=fresh)
    if fresh:
        keep(programs, call.key, program)
    return result


@boundary.verb
def _program(host: CollectiveHost, programs: FunctionPrograms, call: Call) -> tuple[Call, Program]:
    """Returns the program for arguments that were not seen before, or need another look."""
    checked_call("run", call.fn, call.args, call.kwargs)
    require_plain(call.fn)
    args, kwargs = converted(call.fn, call.args, call.kwargs, host.mesh)
    call = call.with_arguments(args, kwargs)
    program = programs.get(call.key)
    if program is not None and program.captured is not None and program.captured.changed():
        del programs[call.key]
        program = None
    if program is None:
        plain = call.without_mirrored()
        known = programs.get(plain)
        if known is not None and known.captured is None:
            program = programs[call.key] = known
        else:
            program = Program(call, host)
        if plain != call.key and program.captured is None and not program.spmd.outside:
            programs[plain] = program
    return call, program


def _record(  # noqa: PLR0917
    recorder: sink.Recorder,
    place: Place,
    programs: FunctionPrograms,
    program: Program,
    call: Call,
    result: Any,
    marker: jax.Array | None,
    called: int,
    *,
    fresh: bool,
) -> None:
    """Emits the events of a step that was dispatched, and keeps what later looks need."""
    if fresh:
        _report_compiled(recorder, program, programs, place, call, result)
    examples = place.batch.examples_among(call.leaves) if place.batch.recent else 0
    step = calls.emit_step(recorder, program.number, place.number, called, examples)
    if marker is not None:
        recorder.watch(place.number, step, called, marker)
    if program.alike_leaves:
        arrays = jax.tree.leaves(result)
        for position in program.alike_leaves:
            stacks.remember_equal_rows(arrays[position])
    if program.copies is not None:
        program.copies.keep(result, step)
    if program.results is not None:
        program.results.keep(step, recorder, call.leaves)
    elif fresh:
        program.results = watched(program, place.number)


def _report_compiled(  # noqa: PLR0917
    recorder: sink.Recorder,
    program: Program,
    programs: FunctionPrograms,
    place: Place,
    call: Call,
    result: Any,
) -> None:
    """Emits the event of a program that was compiled. The step has run, whatever fails here."""
    try:
        doubts = examined(program, place.number, call.leaves, result)
        referred = place.programs.changed_references(call.fn)
        compile_events.emit(
            program, programs, place.number, doubts, referred=referred, recorder=recorder
        )
    except Exception as error:  # noqa: BLE001 - of any new version of JAX
        calls.emit_unread(recorder, program.function, error)


def _report(error: Exception) -> None:
    """Emits that a call of `run` raised."""
    recorder = sink.recorder()
    if recorder.enabled:
        calls.emit_error(recorder, "run", error)
