"""A replica function compiled for one set of argument shapes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp

from distlab.collectives.host import CollectiveHost
from distlab.devices import in_flight, selection
from distlab.devices.jax_internals import plain
from distlab.errors import ContextError
from distlab.step.arguments import Arguments
from distlab.step.program_inputs import ProgramInputs
from distlab.step.spmd import SpmdFunction
from distlab.values.checks import function_name, function_source, require_plain

_numbers = itertools.count()


@final
class Program:
    """The program of one function for one set of argument shapes.

    Making one traces the function; the first call compiles it.

    Attributes:
      number: Its number in this process.
      function: The function's qualified name.
      source: File and line of the function's definition.
      arguments: The function's arguments, leaf by leaf.
      spmd: The function over all replicas.
      inputs: Places the inputs on the mesh.
      compiled: The executable; None until the first call.
      trace_ns: Nanoseconds that tracing and lowering took.
      compile_ns: Nanoseconds that XLA took; 0 until the first call.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        host: CollectiveHost,
        donated: tuple[int, ...] = (),
    ) -> None:
        require_plain(fn)
        started = time.monotonic_ns()
        self.number = next(_numbers)
        self.function = function_name(fn)
        self.source = function_source(fn)
        self.arguments = Arguments(fn, args, kwargs, host.mesh, donated)
        self.spmd = SpmdFunction(fn, self.arguments, host)
        self.inputs = ProgramInputs(self.function, self.arguments, self.spmd.read, host)
        self.compiled: Any = None
        self.trace_ns = time.monotonic_ns() - started
        self.compile_ns = 0
        self._mesh = host.mesh
        self._marker: int | None = None  # the output that is awaited as the step's end

    def __call__(self, leaves: list[Any]) -> tuple[Any, jax.Array | None]:
        """Dispatches one step to the devices, without waiting for it.

        Args:
          leaves: The flat arguments.

        Returns:
          The function's result with per-replica leaves, and one array that is
          ready when the step is (None when the step has no output).
        """
        if self.inputs.donates:
            self.inputs.require_alive(leaves)
        arrays = self.inputs.arrays(leaves)
        if self.compiled is None:
            arrays = self.inputs.on_mesh(arrays)
        with in_flight.dispatching:
            values = self.inputs.values()
            if self.compiled is None:
                self._compile(values, arrays)
            outputs = self._execute(values, arrays)
            marker = None if self._marker is None else plain(outputs[self._marker])
            if self.inputs.donates:
                del outputs[-1]
            written = self.spmd.written
            for variable, new in zip(written, outputs[len(outputs) - len(written) :], strict=True):
                variable.storage.adopt(new)
            if marker is not None:
                in_flight.admit(marker)
        return self.spmd.result(outputs), marker

    def inline(self, leaves: list[Any]) -> Any:
        """Adds the step to the program that a user's own `jax.jit` is tracing.

        Raises:
          ContextError: The function uses variables, whose present values would
            become constants of the user's program.
        """
        variables = [*self.spmd.read, *self.spmd.written]
        if variables:
            raise ContextError(
                f"{self.function} uses {variables[0].name}, and run was called inside a JAX "
                "transformation, which would compile the variable's present value in. Call run "
                "outside of it (run compiles by itself), or keep the state in arguments and "
                "results."
            )
        return self.spmd.result(self.spmd([], self.inputs.dynamic(leaves)))

    def _compile(self, values: list[Any], arrays: list[Any]) -> None:
        donates = self.inputs.donates

        def step(values: list[Any], kept: list[Any], donated: list[Any]) -> list[jax.Array]:
            rest, reusable = iter(kept), iter(donated)
            dynamic = [next(reusable if d else rest) for d in self.inputs.donated]
            results = self.spmd(values, dynamic)
            if not donates:
                return results
            # A result may be donated before this step is done, so an array that no caller
            # receives marks the step's end.
            done = jax.lax.with_sharding_constraint(jnp.zeros((), jnp.uint8), self._mesh.whole)
            return [*results, done]

        step.__name__ = self.function.rsplit(".", 1)[-1].strip("<>")
        started = time.monotonic_ns()
        lowered = jax.jit(step, donate_argnums=2).lower(values, *self.inputs.by_donation(arrays))
        compiling = time.monotonic_ns()
        self.compiled = lowered.compile()
        self.trace_ns += compiling - started
        self.compile_ns = time.monotonic_ns() - compiling
        selection.give_back_memory()
        sizes = [out.size * out.dtype.itemsize for out in jax.tree.leaves(lowered.out_info)]
        if donates:
            self._marker = len(sizes) - 1
        else:
            self._marker = sizes.index(min(sizes)) if sizes else None

    def _execute(self, values: list[Any], arrays: list[Any]) -> list[jax.Array]:
        inputs = self.inputs
        try:
            return self.compiled(values, *inputs.by_donation(arrays))
        except ValueError:  # an array is not where the program was compiled for
            return self.compiled(values, *inputs.by_donation(inputs.on_mesh(arrays)))
