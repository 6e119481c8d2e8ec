"""A replica function compiled for one set of argument shapes."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable
from inspect import ismethod
from types import FunctionType
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from distlab.collectives.host import CollectiveHost
from distlab.devices import connections, dispatch_order, in_flight, jax_internals, selection
from distlab.devices.dispatch_order import Dispatch
from distlab.devices.jax_internals import ConcreteArray, plain
from distlab.errors import ContextError
from distlab.events import numbering, sink
from distlab.events.sink import NO_NOTES, Argument, ProgramNotes
from distlab.processes.boundary import verb
from distlab.step.arguments.call import Call
from distlab.step.arguments.leaves import Arguments
from distlab.step.functions.state import captured_state
from distlab.step.programs.inputs import ProgramInputs, merged
from distlab.step.programs.spmd import SpmdFunction
from distlab.step.ragged.programs import RaggedPrograms
from distlab.user_code import calling_line, is_users
from distlab.values.checks import code_of, function_name, function_source
from distlab.variables import server_traffic, storage
from distlab.variables.remote_storage import RemoteStorage
from distlab.variables.remote_transfers import RemoteChanges


@final
class Program:
    """The program of one function for one set of argument shapes.

    Making one traces the function; the first call compiles it.
    """

    def __init__(
        self,
        call: Call,
        host: CollectiveHost,
    ) -> None:
        fn, args, kwargs = call.fn, call.args, call.kwargs
        started = time.monotonic_ns()
        self.number = next(numbering.programs)
        self.host = weakref.ref(host)  # programs hold neither strategies nor functions
        self.fn: Callable[[], Any] = _reference(fn)
        self.function = function_name(fn)
        code = code_of(fn)
        # The steps of Keras are distlab's: there the line that calls fit is the user's.
        users = code is None or is_users(code.co_filename)
        self.source = function_source(fn) if users else calling_line()
        self.configuration = jax_internals.configuration()
        self.arguments = Arguments(fn, args, kwargs, host.mesh, call.donated)
        self.captured = captured_state(fn)
        try:
            self.spmd = SpmdFunction(fn, self.arguments, host)
        except Exception as error:
            if self.captured is not None:
                self.captured.explain(error)
            raise
        self.inputs = ProgramInputs(self.function, self.arguments, self.spmd, host)
        self.compiled: Any = None
        self._whole: tuple[Any, ...] = ()  # with which the work of one device is compared
        self.trace_ns = time.monotonic_ns() - started
        self.compile_ns = 0
        self.copies: Any = None
        self.results: Any = None
        self.alike: frozenset[int] = frozenset()
        self.alike_leaves: list[int] = []
        self._changes = _remote_changes(self.spmd)
        self._assigns = bool(self.spmd.written or self.spmd.updates)
        self._operands = self.spmd.computed + len(self.spmd.written)  # they follow all others
        # The traffic of other processes is counted where their messages are sent.
        self._on_servers = any(
            v.storage.layout.server is not None and not isinstance(v.storage, RemoteStorage)
            for v in [*self.spmd.read, *self.spmd.written]
        )
        self._mesh = host.mesh
        self._dispatch = _dispatch(self) if host.mesh.shared else None
        self._keeping: Any = None  # runs the program, and leaves the variables' arrays
        self._call: Any = None  # the same, but takes them over where it is C++ alone
        self._known: Callable[[], int] = int  # counts the kinds of arrays for which it is
        self._marker: int | None = None  # the output that is awaited as the step's end
        self._marker_is_a_key = False
        # An output that marks the step's end is needed where all others may be given away, as
        # variables are to the next step, and where several programs make them.
        only_variables = bool(self.spmd.written) and not self.spmd.computed
        self._marks = self.inputs.donates or only_variables or self.spmd.parted
        self._direct = False  # whether the leaves are the program's inputs as they are
        self._reading = storage.giving if self.inputs.gives else threading.RLock()
        self._wraps = self.spmd.wraps()
        self._order, self._taken = _order_of_outputs(self.spmd, self.inputs)
        positions = {number: position for position, number in enumerate(self._order)}
        self._written = [
            (variable.storage, positions[number])
            for number, variable in enumerate(self.spmd.written, self.spmd.computed)
        ]

    def __call__(self, leaves: list[Any]) -> tuple[Any, jax.Array | None]:
        """Dispatches one step to the devices, without waiting for it."""
        if in_flight.failed:
            in_flight.require_sound()
        if in_flight.is_held():
            raise ContextError(
                "run was called by a function that interrupted another call of run in the same "
                "thread, such as a signal handler, while the variables were between two steps. "
                "Set a flag there, and look at it between steps."
            )
        # Where a program that has run before receives a donated array, JAX ends the process.
        for leaf in leaves:
            if type(leaf) is ConcreteArray and leaf.is_deleted():
                self.inputs.require_alive(leaves)
        arrays = leaves
        if not self._direct or self.copies is not None or np.ndarray in map(type, leaves):
            arrays = self._arrays(leaves)
        with in_flight.dispatching:
            if self._dispatch is not None:
                dispatch_order.noted_as(self._dispatch)
            with self._reading:
                outputs = self._execute(arrays)
            marker = self._admitted(outputs)
        return self._result(outputs), marker

    def _admitted(self, outputs: list[jax.Array]) -> jax.Array | None:
        """Counts the step as in flight; returns the output that marks its end."""
        marker = None if self._marker is None else outputs[self._marker]
        if self._marker_is_a_key:
            marker = plain(marker)
        if marker is not None and self.spmd.waits:
            in_flight.admit(marker, assigns=self._assigns)
        return marker

    def _arrays(self, leaves: list[Any]) -> list[Any]:
        """Returns the inputs that the leaves make, on the mesh."""
        if self.inputs.donates:
            self.inputs.require_alive(leaves)
        if self.copies is not None:
            self.copies.look(leaves)
        arrays = self.inputs.arrays(leaves)
        if self.compiled is None:
            arrays = self.inputs.on_mesh(arrays)
            with in_flight.dispatching:
                self._compile(arrays)
            self._direct = self.inputs.all_split and not self.inputs.donates
        return arrays

    def inline(self, leaves: list[Any]) -> Any:
        """Adds the step to the program that a user's own `jax.jit` is tracing."""
        variables = [*self.spmd.read, *self.spmd.written]
        if variables:
            raise ContextError(
                f"{self.function} uses {variables[0].name}, and run was called inside a JAX "
                "transformation, which would compile the variable's present value in. Call run "
                "outside of it (run compiles by itself), or keep the state in arguments and "
                "results."
            )
        return self._result(self.spmd.inline(self.inputs.dynamic(leaves)))

    def _result(self, outputs: list[jax.Array]) -> Any:
        """Returns the result of the function, with distributed values at its computed leaves."""
        values: list[Any] = outputs[: len(self._wraps)]
        for position, wrap in enumerate(self._wraps):
            if wrap is not None:
                values[position] = wrap(outputs[position])
        first = self.spmd.traces[0]
        if len(values) < len(first.static):
            computed = iter(values)
            values = [next(computed) if fixed is None else fixed[0] for fixed in first.static]
        return first.results.unflatten(values)

    @property
    def executable(self) -> Any:
        """The `jax.stages.Compiled`, or a list of them for a ragged step; None before the first."""
        compiled = self.compiled
        return compiled.programs if isinstance(compiled, RaggedPrograms) else compiled

    @property
    def notes(self) -> ProgramNotes:
        """Names of the executable's arrays, as far as it is one."""
        names = self.inputs.names()
        if self.spmd.ragged or self.spmd.parted or names is None:
            return NO_NOTES
        written = [""] * self.spmd.computed + [variable.name for variable in self.spmd.written]
        outputs = [written[n] if n < len(written) else "" for n in self._order]
        outputs += [""] * bool(self._marks)
        return ProgramNotes([Argument(name) for name in names], outputs, *self._whole)

    @verb
    def _compile(self, arrays: list[Any]) -> None:
        inputs = self.inputs

        def step(
            kept_values: list[Any], given_values: list[Any], kept: list[Any], donated: list[Any]
        ) -> list[jax.Array]:
            values = inputs.in_order(kept_values, given_values)
            results = self.spmd(values, merged(inputs.donated, kept, donated))
            results = [results[position] for position in self._order]
            if self._changes is not None:
                operands = results[self._operands :]
                results = [*results[: self._operands], *self._changes.join(operands)]
            if not self._marks:
                return results
            # Other outputs may be given away before this step is done, so an array that no
            # caller receives marks the step's end.
            done = jax.lax.with_sharding_constraint(jnp.zeros((), jnp.uint8), self._mesh.whole)
            return [*results, done]

        step.__name__ = self.function.rsplit(".", 1)[-1].strip("<>")
        started = time.monotonic_ns()
        lowered: Any
        if self.spmd.parted:
            values, _ = inputs.examples()
            lowered = self.spmd.programs(step.__name__, values, arrays, inputs.donated)
        else:
            pinned: dict[str, Any] = {}
            if self._mesh.model > 1:
                pinned["out_shardings"] = self._out_shardings()
            jitted = jax.jit(step, donate_argnums=(1, 3), **pinned)
            traced = jitted.trace(*inputs.examples(), *inputs.by_donation(arrays))
            lowered = traced.lower()
            if self._mesh.model > 1 and sink.recorder().enabled:
                self._whole = (lowered, traced.jaxpr)
        compiling = time.monotonic_ns()
        self.compiled = self._keeping = self._call = lowered.compile()
        if not self.spmd.parted:
            self._keeping, self._call = jax_internals.calls_of(self.compiled, 1)
            self._known = jax_internals.cache_size(self._call) or int
        self.trace_ns += compiling - started
        self.compile_ns = time.monotonic_ns() - compiling
        selection.give_back_memory()
        if self._marks:
            self._marker = -1
            return
        outputs = jax.tree.leaves(lowered.out_info)[self._taken :]
        sizes = [out.size * out.dtype.itemsize for out in outputs]
        if sizes:
            # Results rather than variables, whose memory the next step may take over.
            sizes = sizes[: self.spmd.computed] or sizes
            self._marker = sizes.index(min(sizes))
            dtype = outputs[self._marker].dtype
            self._marker_is_a_key = jnp.issubdtype(dtype, jax.dtypes.extended)

    def _out_shardings(self) -> list[NamedSharding]:
        """Returns where the outputs lie, which XLA would choose by itself along the model axis."""
        specs = self.spmd.out_specs()
        specs = [specs[n] for n in self._order] + [PartitionSpec()] * self._marks
        return [NamedSharding(self._mesh.mesh, spec) for spec in specs]

    def _execute(self, arrays: list[Any]) -> list[jax.Array]:
        """Runs the program, and stores the new values of variables."""
        inputs = self.inputs
        try:
            return self._run(inputs.by_donation(arrays) if inputs.donates else (arrays, []))
        except ValueError:
            if inputs.are_placed(arrays):
                raise
            return self._run(inputs.by_donation(inputs.on_mesh(arrays)))
        except jax_internals.FoundNotFinite as error:
            raise FloatingPointError(
                f"{self.function} computed NaN or infinity, which jax_debug_nans or "
                "jax_debug_infs forbids; its variables are unchanged. "
                "distlab.run_functions_eagerly(True) finds the line."
            ) from error

    def _run(self, arrays: tuple[list[Any], list[Any]]) -> list[jax.Array]:
        # What is given away is lost where the step ran and JAX raises nevertheless: when it looks
        # for NaN, and in Python code, which may be interrupted.
        agreement = self.spmd.agreement
        if agreement is not None and agreement.looked_at != storage.changes.last:
            agreement.confirm()
        config: Any = jax.config
        checks = self.inputs.gives and (config.jax_debug_nans or config.jax_debug_infs)
        keep = checks or not self._known()
        values = self.inputs.values(keep=keep) if self.spmd.read else ([], [])
        call = self._keeping if checks else self._call
        ran: list[list[jax.Array]] = []
        for stored, position in self._written:
            stored.expect(ran, position)
        # One call of Python's C code, so that no interrupt comes between step and list.
        ran.extend(itertools.starmap(call, ((*values, *arrays),)))
        (outputs,) = ran
        for stored, position in self._written:
            stored.adopt(outputs[position])
        if self._on_servers:
            server_traffic.note_step(self.spmd.read, self.spmd.written)
        if self._changes is not None:
            self._changes.send(outputs[self._operands : self._operands + self._changes.arrays])
        if keep and self._mesh.shared:
            connections.settle(outputs)
        outputs = outputs[self._taken :]
        if self.results is not None:
            self.results.take(outputs)
        return outputs


def _reference(fn: Callable[..., Any]) -> Callable[[], Any]:
    if ismethod(fn):
        return weakref.WeakMethod(fn)
    return weakref.ref(fn) if isinstance(fn, FunctionType) else lambda: None


def _remote_changes(spmd: SpmdFunction) -> RemoteChanges | None:
    """Returns the operations of a step on variables of other processes; None for no operation."""
    changes = [
        (variable.storage, verb, count)
        for variable, verb, count in spmd.updates
        if isinstance(variable.storage, RemoteStorage)
    ]
    return RemoteChanges(changes, spmd.operand_kinds()) if changes else None


def _dispatch(program: Program) -> Dispatch:
    """Returns what the guard compares between processes: what the program exchanges, and how."""
    parts = [program.function, *map(str, program.arguments.dynamic()), *program.spmd.exchanges()]
    return Dispatch(program.function, dispatch_order.fingerprint(parts))


def _order_of_outputs(spmd: SpmdFunction, inputs: ProgramInputs) -> tuple[list[int], int]:
    """Returns the outputs of `spmd` in the order of the program's, and how many go first.

    Those are the new values of variables that are given, in the order of the old ones: XLA pairs
    given arrays with outputs of their size one by one, and would copy where the order differs.
    """
    numbers = {variable: n for n, variable in enumerate(spmd.written, spmd.computed)}
    first = [numbers[v] for v, given in zip(spmd.read, inputs.given, strict=True) if given]
    taken = set(first)
    operands = sum(count for _, _, count in spmd.updates)
    total = spmd.computed + len(spmd.written) + operands
    rest = [n for n in range(total) if n not in taken]
    return [*first, *rest], len(first)
