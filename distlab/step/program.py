"""A replica function compiled for one set of argument shapes."""

from __future__ import annotations

import functools
import itertools
import time
import weakref
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from distlab.collectives.host import CollectiveHost
from distlab.devices import in_flight, selection
from distlab.devices.jax_internals import ConcreteArray, plain
from distlab.errors import ContextError, DonatedError
from distlab.step.arguments import Arguments, Leaf
from distlab.step.spmd import SpmdFunction
from distlab.values import copy_events
from distlab.values.checks import function_name, function_source, require_plain
from distlab.values.copy_events import Direction

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
        self.compiled: Any = None
        self.trace_ns = time.monotonic_ns() - started
        self.compile_ns = 0
        self._mesh = host.mesh
        self._strategy = host.number
        self._roles = [leaf.role for leaf in self.arguments.leaves]
        self._all_split = all(role == "split" for role in self._roles)
        self._donated = [leaf.donated for leaf in self.arguments.dynamic()]
        self._donates = any(self._donated)
        self._copies: dict[int, tuple[weakref.ref[jax.Array], jax.Array]] = {}
        self._smallest: int | None = None

    def __call__(self, leaves: list[Any]) -> tuple[Any, jax.Array | None]:
        """Dispatches one step to the devices, without waiting for it.

        Args:
          leaves: The flat arguments.

        Returns:
          The function's result with per-replica leaves, and one array that is
          ready when the step is (None when the step has no output).
        """
        if self._donates:
            self.require_alive(leaves)
        inputs = leaves if self._all_split else self._inputs(leaves)
        if self.compiled is None:
            inputs = self._on_mesh(inputs)
        with in_flight.dispatching:
            values = self._values()
            if self.compiled is None:
                self._compile(values, inputs)
            outputs = self._execute(values, inputs)
            smallest = None if self._smallest is None else plain(outputs[self._smallest])
            if self._donates:
                del outputs[-1]
            written = self.spmd.written
            for variable, new in zip(written, outputs[len(outputs) - len(written) :], strict=True):
                variable.storage.adopt(new)
            if smallest is not None:
                in_flight.admit(smallest)
        return self.spmd.result(outputs), smallest

    def _values(self) -> list[jax.Array]:
        """Returns the variables' values on the mesh; emits a copy where one had to move."""
        started = time.monotonic_ns() if self.spmd.read else 0
        values = [variable.storage.over(self._mesh) for variable in self.spmd.read]
        moved = [
            value.nbytes
            for value, variable in zip(values, self.spmd.read, strict=True)
            if value is not variable.storage.array
        ]
        if moved:
            self._emit_copy(f"{len(moved)} variables", "between_devices", sum(moved), started)
        return values

    def _emit_copy(self, what: str, direction: Direction, size: int, started: int) -> None:
        copy_events.announce(
            self._strategy,
            f"{what} of {self.function}",
            direction,
            size=size,
            copies=self._mesh.replicas,
            started=started,
        )

    def join(self, leaves: list[Any]) -> Any:
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
        dynamic = [v for r, v in zip(self._roles, leaves, strict=True) if r != "static"]
        return self.spmd.result(self.spmd([], dynamic))

    def _compile(self, values: list[Any], inputs: list[Any]) -> None:
        def step(values: list[Any], kept: list[Any], donated: list[Any]) -> list[jax.Array]:
            rest, reusable = iter(kept), iter(donated)
            results = self.spmd(values, [next(reusable if d else rest) for d in self._donated])
            if not self._donates:
                return results
            # A result may be donated before this step is done, so an array that no caller
            # receives marks the step's end.
            done = jax.lax.with_sharding_constraint(jnp.zeros((), jnp.uint8), self._mesh.whole)
            return [*results, done]

        step.__name__ = self.function.rsplit(".", 1)[-1].strip("<>")
        started = time.monotonic_ns()
        lowered = jax.jit(step, donate_argnums=2).lower(values, *self._by_donation(inputs))
        compiling = time.monotonic_ns()
        self.compiled = lowered.compile()
        self.trace_ns += compiling - started
        self.compile_ns = time.monotonic_ns() - compiling
        selection.give_back_memory()
        sizes = [out.size * out.dtype.itemsize for out in jax.tree.leaves(lowered.out_info)]
        self._smallest = sizes.index(min(sizes)) if sizes else None
        if self._donates:
            self._smallest = len(sizes) - 1

    def _execute(self, values: list[Any], inputs: list[Any]) -> list[jax.Array]:
        try:
            return self.compiled(values, *self._by_donation(inputs))
        except ValueError:  # an array is not where the program was compiled for
            return self.compiled(values, *self._by_donation(self._on_mesh(inputs)))

    def _by_donation(self, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        """Returns the arrays that are kept, and the donated ones."""
        if not self._donates:
            return inputs, []
        pairs = list(zip(inputs, self._donated, strict=True))
        return [array for array, d in pairs if not d], [array for array, d in pairs if d]

    def require_alive(self, leaves: list[Any]) -> None:
        """Checks that no array of the flat arguments was deleted or is donated twice.

        Raises:
          DonatedError: An array was deleted, or donated together with another use of it.
        """
        seen: dict[int, Leaf] = {}
        for leaf, array in zip(self.arguments.leaves, leaves, strict=True):
            if not isinstance(array, ConcreteArray):
                continue
            if array.is_deleted():
                raise DonatedError(
                    f"{leaf} was deleted, or donated to an earlier call, so it can't be used "
                    "again. Use the result of that call, or leave donate_argnums out of it."
                )
            other = seen.setdefault(id(array), leaf)
            if other is not leaf and (leaf.donated or other.donated):
                raise DonatedError(
                    f"{other.label} and {leaf.label} are one array, and donate_argnums donates "
                    "it. Pass a copy of one of them, or leave donate_argnums out."
                )

    def _on_mesh(self, inputs: list[Any]) -> list[Any]:
        """Moves arrays of other devices, from user code or another strategy, to the mesh."""
        return [
            _put(array, self._mesh.split if leaf.role == "split" else self._mesh.whole, leaf)
            for array, leaf in zip(inputs, self.arguments.dynamic(), strict=True)
        ]

    def _inputs(self, leaves: list[Any]) -> list[Any]:
        return [
            self._input(position, role, leaf)
            for position, (role, leaf) in enumerate(zip(self._roles, leaves, strict=True))
            if role != "static"
        ]

    def _input(self, position: int, role: str, leaf: Any) -> Any:
        if role == "split":
            return leaf
        copy = self._copies.get(position)
        if copy is not None and copy[0]() is leaf:
            return copy[1]
        if isinstance(leaf, jax.Array) and leaf.sharding == self._mesh.whole:
            return leaf
        started = time.monotonic_ns()
        from_host = isinstance(leaf, np.ndarray)
        if from_host:
            leaf = leaf.copy()  # JAX may share the buffer, and the user may write to it
        argument = self.arguments.leaves[position]
        placed = _put(leaf, self._mesh.whole, argument)
        if from_host or isinstance(leaf, ConcreteArray):
            direction: Direction = "to_devices" if from_host else "between_devices"
            self._emit_copy(f"argument {argument.label}", direction, leaf.nbytes, started)
        if isinstance(leaf, ConcreteArray) and not argument.donated:
            # Arrays never change, so one copy serves for as long as the array lives.
            forget = functools.partial(self._forget, position)
            self._copies[position] = (weakref.ref(leaf, forget), placed)
        return placed

    def _forget(self, position: int, dead: weakref.ref[jax.Array]) -> None:
        copy = self._copies.get(position)
        if copy is not None and copy[0] is dead:
            del self._copies[position]


def _put(array: Any, sharding: NamedSharding, leaf: Leaf) -> jax.Array:
    """Puts an array on its devices; a donated one as a copy."""
    if isinstance(array, jax.Array) and array.sharding == sharding:
        return array
    # device_put may share the array's memory on the device that has it already.
    return jax.device_put(jnp.copy(array) if leaf.donated else array, sharding)
