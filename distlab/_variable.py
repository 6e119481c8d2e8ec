"""Variables: named arrays that live on the replicas' devices and can be assigned.

A variable made in a strategy's scope is one global array. A function given to
`run` reads and assigns it as if it were local; `run` passes its value in and
takes the new one out. JAX users who keep their state in pytrees never need it.
"""

from __future__ import annotations

import enum
import itertools
import time
import weakref
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab import _context, _frame, _jax_internals, _seam, _values, events
from distlab._mesh import ReplicaMesh
from distlab._operators import ArrayOperators
from distlab._reduce_op import ReduceOp
from distlab._replica_context import ReplicaContext
from distlab.errors import ContextError, ValueShapeError

Layout: TypeAlias = Literal["replicated", "per_replica", "single"]


class VariableSynchronization(enum.Enum):
    """When the copies of a variable are brought together (TensorFlow's enum)."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """How what the replicas assign becomes one value (TensorFlow's enum)."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


_live: weakref.WeakSet[Variable] = weakref.WeakSet()
_numbers = itertools.count()


@final
class Variable(ArrayOperators):
    """An array that can be assigned (`tf.Variable` under a strategy).

    In a strategy's scope every replica gets a copy. Assigned in a replica
    function, `aggregation` says how the replicas' values become one: SUM, MEAN
    or ONLY_FIRST_REPLICA; with NONE each replica writes its own copy, which is
    right when they write the same (gradients that were all-reduced before).
    With `synchronization=ON_READ` each copy is written alone, and reading in
    cross-replica context aggregates.

    Args:
      initial_value: an array-like, or a function without arguments that makes
        one.
      trainable: for your own use; by default true, and false when ON_READ.
      name: shown on the pages; by default `variable_N`.
      dtype: element type, by default that of `initial_value`.
      synchronization: AUTO (the same as ON_WRITE), ON_WRITE or ON_READ.
      aggregation: how replicas' assignments, or ON_READ copies, combine.

    Raises:
      ValueShapeError: no numbers, or an integer variable with MEAN.
      ContextError: made inside a function that is being traced.
    """

    def __init__(
        self,
        initial_value: Any,
        trainable: bool | None = None,
        *,
        name: str | None = None,
        dtype: Any = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
    ) -> None:
        number = next(_numbers)
        self.name = name or f"variable_{number}"
        if _jax_internals.being_staged():
            raise ContextError(
                f"{self.name} would be made while its function is being traced, once for each "
                "compilation. Make variables in strategy.scope(), before the step."
            )
        if synchronization is VariableSynchronization.NONE:
            raise ValueShapeError(
                f"{self.name}: synchronization NONE has no meaning for a distributed variable. "
                "Use ON_WRITE (copies stay the same) or ON_READ (each copy is written alone)."
            )
        value = initial_value() if callable(initial_value) else initial_value
        array = _to_array(value, dtype, self.name)
        if aggregation is VariableAggregation.MEAN and not jnp.issubdtype(array.dtype, jnp.inexact):
            raise ValueShapeError(
                f"{self.name} is {array.dtype}: a MEAN of integers is no integer. Use SUM or "
                "ONLY_FIRST_REPLICA, or a float variable."
            )
        on_read = synchronization is VariableSynchronization.ON_READ
        self.strategy = _context.get_strategy()
        self.trainable = not on_read if trainable is None else bool(trainable)
        self.aggregation = aggregation
        self.synchronization = (
            VariableSynchronization.ON_READ if on_read else VariableSynchronization.ON_WRITE
        )
        self.shape: tuple[int, ...] = array.shape
        self.dtype = array.dtype
        self.mesh: ReplicaMesh | None = self.strategy.mesh if self.strategy.distributed else None
        self.layout: Layout = (
            "single" if self.mesh is None else "per_replica" if on_read else "replicated"
        )
        self.global_array = self._place(array)
        _live.add(self)
        _announce(self, number)

    # ---- reading

    def value(self) -> jax.Array:
        """Returns the value: this replica's in a replica function, else the common one.

        Outside of a replica function it lies on the first replica's device;
        the copies of an ON_READ variable are aggregated.

        Raises:
          ContextError: read inside a user's own `jax.jit`, which would keep the
            number it has now for ever.
          ValueShapeError: ON_READ copies with aggregation NONE.
        """
        frame = _frame.current()
        if frame is not None:
            return frame.get(self)
        if _jax_internals.being_staged():
            raise ContextError(
                f"{self.name} was read inside jax.jit, which would compile its present value in. "
                "Pass variable.value() to the function as an argument, or use strategy.run."
            )
        if self.layout == "per_replica":
            return self._aggregated()
        copy: jax.Array = _values.pieces(self.global_array)[0]
        return copy

    def read_value(self) -> jax.Array:
        """Returns `value()` (TensorFlow's other name for it)."""
        return self.value()

    def numpy(self) -> np.ndarray:
        """Returns the value as a NumPy array; waits for it."""
        return np.asarray(self.value())

    @property
    def values(self) -> tuple[jax.Array, ...]:
        """The copies in replica order, each on its replica's device."""
        copies = _values.pieces(self.global_array)
        return tuple(copy[0] for copy in copies) if self.layout == "per_replica" else tuple(copies)

    # ---- assigning

    def assign(self, value: Any) -> Variable:
        """Sets the value and returns this variable.

        Args:
          value: an array-like of this variable's shape and dtype.

        Raises:
          ValueShapeError: shape or dtype differ.
          ContextError: inside another strategy's scope or `run`, or inside a
            user's own `jax.jit`.
        """
        return self._update(value, "assign", lambda _, new: new)

    def assign_add(self, delta: Any) -> Variable:
        """Adds to the value and returns this variable; else as `assign`."""
        return self._update(delta, "assign_add", jnp.add)

    def assign_sub(self, delta: Any) -> Variable:
        """Subtracts from the value and returns this variable; else as `assign`."""
        return self._update(delta, "assign_sub", jnp.subtract)

    def _update(self, operand: Any, verb: str, combine: Callable[[Any, Any], Any]) -> Variable:
        self._require_own_strategy(verb)
        array = self._checked(operand, verb)
        frame = _frame.current()
        if frame is None:
            if isinstance(array, jax.core.Tracer):
                raise ContextError(
                    f"{self.name}.{verb} was called inside jax.jit outside of strategy.run. Return "
                    "the new value from the function and assign it outside."
                )
            self._update_all(array, verb, combine)
            return self
        context = _context.get_replica_context()
        if self.layout != "per_replica" and context is not None:
            array = self._combined(operand, array, verb, context)
        frame.set(self, combine(frame.get(self) if verb != "assign" else None, array))
        return self

    def _combined(
        self, operand: Any, array: jax.Array, verb: str, context: ReplicaContext
    ) -> jax.Array:
        """What all replicas assign together."""
        if context.num_replicas_in_sync == 1 or self.aggregation is VariableAggregation.NONE:
            return array
        if isinstance(operand, bool | int | float):
            if self.aggregation is VariableAggregation.SUM:
                raise ValueShapeError(
                    f"{self.name}.{verb}({operand!r}): a Python number is the same on all "
                    "replicas, so its SUM is not meant. Use an array, or aggregation MEAN."
                )
            return array
        if self.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            return context.collectives.first(array)
        reduced: jax.Array = context.all_reduce(ReduceOp[self.aggregation.name], array)
        return reduced.astype(self.dtype)

    def _update_all(self, array: jax.Array, verb: str, combine: Callable[[Any, Any], Any]) -> None:
        """Assigns every copy from cross-replica context."""
        replicas = 1 if self.mesh is None else self.mesh.size
        if self.layout == "per_replica" and self.aggregation is VariableAggregation.SUM:
            if verb != "assign":
                raise ValueShapeError(
                    f"{self.name}.{verb} outside of a replica function is not defined for ON_READ "
                    "with SUM: which copy would change? Use assign, which divides the value."
                )
            array = (array / replicas).astype(self.dtype)
        placed = self._place(array)
        if verb != "assign":
            placed = combine(self.global_array, placed)
        self.global_array = placed

    # ---- inside

    def _place(self, array: jax.Array) -> jax.Array:
        if self.mesh is None:
            return array
        if self.layout == "replicated":
            return jax.device_put(array, self.mesh.whole)
        rows = np.broadcast_to(np.asarray(array)[None], (self.mesh.size, *array.shape))
        return jax.device_put(rows, self.mesh.split)

    def _aggregated(self) -> jax.Array:
        if self.aggregation is VariableAggregation.NONE:
            raise ValueShapeError(
                f"{self.name} has a copy of its own on each replica and aggregation NONE, so it "
                "has no common value. Read it in a replica function, or give it an aggregation."
            )
        assert self.mesh is not None
        copies = jax.device_put(self.global_array, self.mesh.first)
        if self.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            return copies[0]
        combine = jnp.sum if self.aggregation is VariableAggregation.SUM else jnp.mean
        return combine(copies, axis=0).astype(self.dtype)

    def _checked(self, value: Any, verb: str) -> jax.Array:
        array = _to_array(value, None, f"{self.name}.{verb}")
        weak = array.aval.weak_type or not hasattr(value, "dtype")
        if array.shape != self.shape or (array.dtype != self.dtype and not weak):
            raise ValueShapeError(
                f"{self.name} is {self.dtype}{list(self.shape)}, and {verb} got "
                f"{array.dtype}{list(array.shape)}. Give it a value of that shape and dtype "
                "(array.astype changes the dtype)."
            )
        return array.astype(self.dtype)

    def _require_own_strategy(self, verb: str) -> None:
        current = _context.get_strategy()
        if current is not self.strategy and _context.has_strategy():
            raise ContextError(
                f"{self.name} belongs to {self.strategy!r} and {verb} was called under "
                f"{current!r}. Assign a variable under the strategy that made it."
            )

    def __repr__(self) -> str:
        """Shows name, shape and layout, not numbers."""
        return f"<Variable {self.name}: {self.dtype}{list(self.shape)}, {self.layout}>"


@final
class VariableValue(ArrayOperators):
    """What a variable held when JAX took it apart (`jnp.sin(variable)`, `jax.tree.map`)."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def value(self) -> Any:
        """Returns the value."""
        return self._array


# jnp functions take an object only when it is a pytree: a variable is one, of its value.
for _class in (Variable, VariableValue):
    jax.tree_util.register_pytree_node(
        _class, lambda held: ((held.value(),), None), lambda _, held: VariableValue(held[0])
    )


def is_variable(value: Any) -> bool:
    """Says whether a value is a variable, which distlab's verbs take as it is."""
    return type(value) is Variable


def live() -> list[Variable]:
    """Returns all variables that exist."""
    return list(_live)


def _to_array(value: Any, dtype: Any, what: str) -> jax.Array:
    if isinstance(value, Variable):
        value = value.value()
    try:
        return jnp.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise ValueShapeError(
            f"{what} needs an array or numbers, got a {type(value).__name__}: {value!r:.80}."
        ) from error


def _announce(variable: Variable, number: int) -> None:
    """Emits where the variable was placed, and that it is gone when it is."""

    def placement(action: Literal["place", "free"]) -> events.Placement:
        return events.Placement(
            time_ns=time.monotonic_ns(),
            strategy=strategy,
            array=number,
            name=name,
            action=action,
            layout=layout,
            shape=shape,
            dtype=dtype,
            devices=devices,
            bytes_per_device=[size] * len(devices),
        )

    strategy, name, layout = variable.strategy.number, variable.name, variable.layout
    shape, dtype = list(variable.shape), str(variable.dtype)
    devices = list(variable.strategy.device_names)
    size = int(np.prod(shape)) * variable.dtype.itemsize
    recorder = _seam.recorder()
    if recorder.enabled:
        recorder.emit(placement("place"))
        weakref.finalize(variable, lambda: _seam.recorder().emit(placement("free"))).atexit = False
