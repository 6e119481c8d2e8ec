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
from distlab.step.spread import SpreadFunction
from distlab.values import copy_events
from distlab.values.checks import function_name, function_source, require_plain
from distlab.values.copy_events import Direction

_numbers = itertools.count()


@final
class Program:
    """What `run` executes for one function and one set of argument shapes.

    Making one traces the function; the first call compiles it.

    Attributes:
      number: its number in this process.
      function: the function's qualified name.
      source: file and line where it is defined.
      arguments: what the function is given, leaf by leaf.
      spread: the function over all replicas.
      compiled: what XLA made, None until the first call.
      trace_ns: nanoseconds that tracing and lowering took.
      compile_ns: nanoseconds that XLA took, 0 until the first call.
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
        self.spread = SpreadFunction(fn, self.arguments, host)
        self.compiled: Any = None
        self.trace_ns = time.monotonic_ns() - started
        self.compile_ns = 0
        self._mesh = host.mesh
        self._strategy = host.number
        self._roles = [leaf.role for leaf in self.arguments.leaves]
        self._all_split = all(role == "split" for role in self._roles)
        self._donated = [leaf.donated for leaf in self.arguments.dynamic()]
        self._donates = any(self._donated)
        self._moved: dict[int, tuple[weakref.ref[jax.Array], jax.Array]] = {}
        self._smallest: int | None = None

    def __call__(self, leaves: list[Any]) -> tuple[Any, jax.Array | None]:
        """Hands one step to the devices and returns without waiting for it.

        Args:
          leaves: the flat arguments.

        Returns:
          The function's result with per-replica leaves, and one array that is
          ready when the step is (None when it makes none).
        """
        if self._donates:
            self.require_alive(leaves)
        inputs = leaves if self._all_split else self._inputs(leaves)
        if self.compiled is None:
            inputs = self._placed(inputs)
        with in_flight.dispatching:
            values = self._values()
            if self.compiled is None:
                self._compile(values, inputs)
            outputs = self._execute(values, inputs)
            smallest = None if self._smallest is None else plain(outputs[self._smallest])
            if self._donates:
                del outputs[-1]
            written = self.spread.written
            for variable, new in zip(written, outputs[len(outputs) - len(written) :], strict=True):
                variable.storage.adopt(new)
            if smallest is not None:
                in_flight.admit(smallest)
        return self.spread.result(outputs), smallest

    def _values(self) -> list[jax.Array]:
        """Returns the variables' values on the mesh; says when they had to be moved there."""
        started = time.monotonic_ns() if self.spread.read else 0
        values = [variable.storage.over(self._mesh) for variable in self.spread.read]
        moved = [
            value.nbytes
            for value, variable in zip(values, self.spread.read, strict=True)
            if value is not variable.storage.array
        ]
        if moved:
            self._tell(f"{len(moved)} variables", "between_devices", sum(moved), started)
        return values

    def _tell(self, what: str, direction: Direction, size: int, started: int) -> None:
        copy_events.announce(
            self._strategy,
            f"{what} of {self.function}",
            direction,
            size=size,
            copies=self._mesh.replicas,
            started=started,
        )

    def join(self, leaves: list[Any]) -> Any:
        """Puts the step into the program that a user's own `jax.jit` is making.

        Raises:
          ContextError: the function uses variables, whose present values the
            user's program would keep for ever.
        """
        variables = [*self.spread.read, *self.spread.written]
        if variables:
            raise ContextError(
                f"{self.function} uses {variables[0].name}, and run was called inside a JAX "
                "transformation, which would keep the variable's present value. Call run outside "
                "of it (run compiles by itself), or keep the state in arguments and results."
            )
        dynamic = [v for r, v in zip(self._roles, leaves, strict=True) if r != "static"]
        return self.spread.result(self.spread([], dynamic))

    def _compile(self, values: list[Any], inputs: list[Any]) -> None:
        def step(values: list[Any], kept: list[Any], given: list[Any]) -> list[jax.Array]:
            rest, taken = iter(kept), iter(given)
            results = self.spread(values, [next(taken if d else rest) for d in self._donated])
            if not self._donates:
                return results
            # A result may be given away before this step is done, so the step's end is told by
            # an array that nobody else gets.
            done = jax.lax.with_sharding_constraint(jnp.zeros((), jnp.uint8), self._mesh.whole)
            return [*results, done]

        step.__name__ = self.function.rsplit(".", 1)[-1].strip("<>")
        started = time.monotonic_ns()
        lowered = jax.jit(step, donate_argnums=2).lower(values, *self._divided(inputs))
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
            return self.compiled(values, *self._divided(inputs))
        except ValueError:
            return self.compiled(values, *self._divided(self._placed(inputs)))

    def _divided(self, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        """Returns the arrays that are kept, and those whose memory is given away."""
        if not self._donates:
            return inputs, []
        pairs = list(zip(inputs, self._donated, strict=True))
        return [array for array, d in pairs if not d], [array for array, d in pairs if d]

    def require_alive(self, leaves: list[Any]) -> None:
        """Checks that the arrays of the flat arguments are there, and given away once at most.

        Raises:
          DonatedError: they are not.
        """
        seen: dict[int, Leaf] = {}
        for leaf, array in zip(self.arguments.leaves, leaves, strict=True):
            if not isinstance(array, ConcreteArray):
                continue
            if array.is_deleted():
                raise DonatedError(
                    f"{leaf} was deleted, or given away by donate_argnums, so it can't be used "
                    "again. Use what that call returned, or leave donate_argnums out there."
                )
            other = seen.setdefault(id(array), leaf)
            if other is not leaf and (leaf.donated or other.donated):
                raise DonatedError(
                    f"{other.label} and {leaf.label} are one array, and donate_argnums gives it "
                    "away. Give each of them a copy of its own, or leave donate_argnums out."
                )

    def _placed(self, inputs: list[Any]) -> list[Any]:
        """Brings arrays that the user's own code moved, or another strategy made, to the mesh."""
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
        known = self._moved.get(position)
        if known is not None and known[0]() is leaf:
            return known[1]
        if isinstance(leaf, jax.Array) and leaf.sharding == self._mesh.whole:
            return leaf
        started = time.monotonic_ns()
        from_host = isinstance(leaf, np.ndarray)
        if from_host:
            leaf = leaf.copy()  # JAX may go on using the buffer, and the user may write to it
        if self.arguments.leaves[position].donated:
            placed = _put(leaf, self._mesh.whole, self.arguments.leaves[position])
        else:
            placed = jax.device_put(leaf, self._mesh.whole)
        if from_host or isinstance(leaf, ConcreteArray):
            label = f"argument {self.arguments.leaves[position].label}"
            direction: Direction = "to_devices" if from_host else "between_devices"
            self._tell(label, direction, leaf.nbytes, started)
        if self.arguments.leaves[position].donated:
            return placed
        if isinstance(leaf, ConcreteArray):
            # Arrays never change: the same one need not move again, as long as it lives.
            forget = functools.partial(self._forget, position)
            self._moved[position] = (weakref.ref(leaf, forget), placed)
        return placed

    def _forget(self, position: int, dead: weakref.ref[jax.Array]) -> None:
        known = self._moved.get(position)
        if known is not None and known[0] is dead:
            del self._moved[position]


def _put(array: Any, place: NamedSharding, leaf: Leaf) -> jax.Array:
    """Brings an array to its place; as a copy when it is to be given away there."""
    if isinstance(array, jax.Array) and array.sharding == place:
        return array
    # A copy for every device would share the array's own memory on the device that has it.
    return jax.device_put(jnp.copy(array) if leaf.donated else array, place)
