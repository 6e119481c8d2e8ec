"""Variables: named arrays that live on the replicas' devices and can be assigned.

A variable made in a strategy's scope is one global array. A function given to
`run` reads and assigns it as if it were local; `run` passes its value in and
takes the new one out. JAX users who keep their state in pytrees never need it.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.context import scopes
from distlab.context.collectives import Collectives
from distlab.context.replica_context import ReplicaContext, get_replica_context
from distlab.devices import in_flight, jax_internals
from distlab.errors import ArgumentTypeError, ContextError, ValueShapeError
from distlab.values import copy_events
from distlab.values.operators import ArrayOperators
from distlab.values.reduce_op import ReduceOp
from distlab.variables import frames
from distlab.variables.kinds import VariableAggregation, VariableSynchronization, check_kinds
from distlab.variables.placement_events import announce
from distlab.variables.storage import Storage
from distlab.variables.variable_copy import VariableCopy

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

    Attributes:
      strategy: the strategy in whose scope it was made.
      shape: shape of one copy.
      dtype: element type.
      storage: where its value lies.

    Raises:
      ValueShapeError: no numbers, or an integer variable with MEAN.
      ArgumentTypeError: the name or another argument has a wrong type.
      ContextError: made inside a function that is being traced.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Variable:
        """Makes one variable for all replicas when a replica function asks for it."""
        if scopes.in_cross_replica_context() or not scopes.current_strategy().distributed:
            return super().__new__(cls)
        what = str(kwargs.get("name") or "A variable")
        together = get_replica_context().collectives
        made: Variable = together.create(lambda: cls(*args, **kwargs), what)
        return made

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
        if hasattr(self, "storage"):
            return  # made before, in __new__, for all replicas
        if name is not None and not isinstance(name, str):
            raise ArgumentTypeError(f"A variable's name must be a string, got {name!r:.80}.")
        if trainable is not None and not isinstance(trainable, bool):
            raise ArgumentTypeError(
                f"trainable must be True, False or None, got {trainable!r:.80}. A name is given as "
                "name=..."
            )
        number = next(_numbers)
        self.name = name or f"variable_{number}"
        if jax_internals.being_staged():
            raise ContextError(
                f"{self.name} would be made inside jax.jit, once for each compilation. Make "
                "variables before, in strategy.scope()."
            )
        if synchronization is VariableSynchronization.NONE:
            raise ValueShapeError(
                f"{self.name}: synchronization NONE has no meaning for a distributed variable. "
                "Use ON_WRITE (copies stay the same) or ON_READ (each copy is written alone)."
            )
        check_kinds(self.name, synchronization, aggregation)
        value = initial_value() if callable(initial_value) else initial_value
        array = as_value(value, dtype, self.name)
        if aggregation is VariableAggregation.MEAN and not jnp.issubdtype(array.dtype, jnp.inexact):
            raise ValueShapeError(
                f"{self.name} is {array.dtype}: a MEAN of integers is no integer. Use SUM or "
                "ONLY_FIRST_REPLICA, or a float variable."
            )
        on_read = synchronization is VariableSynchronization.ON_READ
        self.strategy = scopes.current_strategy()
        self.trainable = not on_read if trainable is None else bool(trainable)
        self.aggregation = aggregation
        self.synchronization = synchronization if on_read else VariableSynchronization.ON_WRITE
        self._on_read = on_read and self.strategy.num_replicas_in_sync > 1
        self.shape: tuple[int, ...] = array.shape
        self.dtype = array.dtype
        layout = self.strategy.variable_layout(per_replica=self._on_read)
        self.storage = Storage(array, layout)
        _live.add(self)
        announce(self, number)

    # ---- reading

    def value(self) -> jax.Array:
        """Returns the value: this replica's in a replica function, else the common one.

        Outside of a replica function it lies on the first copy's device; the
        copies of an ON_READ variable are aggregated.

        Raises:
          ContextError: read inside a user's own `jax.jit`, which would keep the
            number it has now for ever.
          ValueShapeError: ON_READ copies with aggregation NONE.
        """
        frame = frames.current()
        if frame is not None:
            together = scopes.merging()
            if together is None or not self._on_read:
                return frame.get(self)
            return self._combined(frame.get(self), together, "read_value")
        if jax_internals.being_staged():
            raise ContextError(
                f"{self.name} was read inside jax.jit, which would compile its present value in. "
                "Pass variable.value() to the function as an argument, or use strategy.run."
            )
        if self.storage.layout.copies_differ:
            return self._aggregated()
        return self.storage.first()

    def read_value(self) -> jax.Array:
        """Returns `value()` (TensorFlow's other name for it)."""
        return self.value()

    def numpy(self) -> np.ndarray:
        """Returns the value as a NumPy array; waits for it."""
        return self.__array__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Lets NumPy functions take this object; waits for its value."""
        return copy_events.to_host(
            self.value(), dtype, strategy=self.strategy.number, what=self.name
        )

    @functools.cached_property
    def values(self) -> tuple[VariableCopy, ...]:
        """The copies in replica order, each an object that can be read and assigned."""
        return tuple(VariableCopy(self, replica) for replica in self.storage.copies())

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
        array = self.checked(operand, verb)
        frame = frames.current()
        if frame is None:
            if isinstance(array, jax.core.Tracer):
                raise ContextError(
                    f"{self.name}.{verb} was called inside jax.jit outside of strategy.run. Return "
                    "the new value from the function and assign it outside."
                )
            self._update_all(array, verb, combine)
            return self
        # Read before the replicas meet: with one copy for all, the first to go on changes it.
        old = None if verb == "assign" else frame.get(self)
        if scopes.in_cross_replica_context():
            array = self._shared_out(array, verb)
        elif not self._on_read:
            array = self._agreed(operand, array, verb, get_replica_context())
        frame.set(self, combine(old, array))
        return self

    def _agreed(
        self, operand: Any, array: jax.Array, verb: str, context: ReplicaContext
    ) -> jax.Array:
        """What all replicas assign together."""
        if context.num_replicas_in_sync == 1:
            return array
        if not self.strategy.distributed:
            return self._in_turns(array, verb, context)
        if self.aggregation is VariableAggregation.NONE:
            if self.storage.layout.one_copy:
                raise ValueShapeError(
                    f"{self.name} has one copy for {context.num_replicas_in_sync} replicas and no "
                    f"aggregation, so {verb} in a replica function has no meaning. Give it an "
                    "aggregation when it is made."
                )
            return array
        if isinstance(operand, bool | int | float):
            if self.aggregation is VariableAggregation.SUM:
                raise ValueShapeError(
                    f"{self.name}.{verb}({operand!r}): a Python number is the same on all "
                    "replicas, so its SUM is not meant. Use an array, or aggregation MEAN."
                )
            together = context.collectives
            return together.first(array) if self.storage.layout.one_copy else array
        return self._combined(array, context.collectives, verb)

    def _in_turns(self, array: jax.Array, verb: str, context: ReplicaContext) -> jax.Array:
        """A variable of no strategy is assigned by one replica after another."""
        if frames.assigns_at_once():
            return array
        if verb != "assign":
            total: jax.Array = context.all_reduce(ReduceOp.SUM, array)
            return total.astype(self.dtype)
        last = context.replica_id_in_sync_group == context.num_replicas_in_sync - 1
        kept: jax.Array = context.all_reduce(
            ReduceOp.SUM, jnp.where(last, array, jnp.zeros_like(array))
        )
        return kept.astype(self.dtype)

    def _combined(self, array: jax.Array, together: Collectives, verb: str) -> jax.Array:
        """The replicas' values as one, by this variable's aggregation."""
        if self.aggregation is VariableAggregation.NONE:
            raise ValueShapeError(_no_common_value(self.name, verb))
        if self.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            chosen: jax.Array = together.first(array)
            return chosen
        (reduced,) = together.all_reduce(ReduceOp[self.aggregation.name], [array])
        combined: jax.Array = reduced.astype(self.dtype)
        return combined

    def _update_all(self, array: jax.Array, verb: str, combine: Callable[[Any, Any], Any]) -> None:
        """Assigns every copy from cross-replica context."""
        placed = self.storage.layout.place(self._shared_out(array, verb))
        with in_flight.dispatching:  # no step or other thread assigns between reading and writing
            self.storage.array = placed if verb == "assign" else combine(self.storage.array, placed)

    def _shared_out(self, array: jax.Array, verb: str) -> jax.Array:
        """What one copy gets of a value assigned in cross-replica context."""
        if not self._on_read or self.aggregation is not VariableAggregation.SUM:
            return array
        if verb != "assign":
            raise ValueShapeError(
                f"{self.name}.{verb} outside of a replica function is not defined for ON_READ "
                "with SUM: which copy would change? Use assign, which divides the value."
            )
        return (array / self.strategy.num_replicas_in_sync).astype(self.dtype)

    # ---- inside

    def _aggregated(self) -> jax.Array:
        if self.aggregation is VariableAggregation.NONE:
            raise ValueShapeError(_no_common_value(self.name, "read_value"))
        rows = jax.device_put(self.storage.array, self.strategy.mesh.first)
        if self.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            return rows[0]
        combine = jnp.sum if self.aggregation is VariableAggregation.SUM else jnp.mean
        return combine(rows, axis=0).astype(self.dtype)

    def checked(self, value: Any, verb: str) -> jax.Array:
        """Returns a value as an array that can be assigned.

        Raises:
          ValueShapeError: its shape or dtype is not this variable's.
        """
        array = as_value(value, None, f"{self.name}.{verb}")
        weak = array.aval.weak_type or not hasattr(value, "dtype")
        if array.shape != self.shape or (array.dtype != self.dtype and not weak):
            raise ValueShapeError(
                f"{self.name} is {self.dtype}{list(self.shape)}, and {verb} got "
                f"{array.dtype}{list(array.shape)}. Give it a value of that shape and dtype "
                "(array.astype changes the dtype)."
            )
        return array.astype(self.dtype)

    def _require_own_strategy(self, verb: str) -> None:
        current = scopes.current_strategy()
        if self.strategy.distributed and current is not self.strategy and current.distributed:
            raise ContextError(
                f"{self.name} belongs to {self.strategy!r} and {verb} was called under "
                f"{current!r}. Assign a variable under the strategy that made it."
            )

    def _repr_html_(self) -> str:
        """Shows in notebooks where the copies lie."""
        from distlab.values.reprs import variable_html

        return variable_html(self)

    def __repr__(self) -> str:
        """Shows name, shape and layout, not numbers."""
        return f"<Variable {self.name}: {self.dtype}{list(self.shape)}, {self.storage.layout.name}>"


@final
class VariableValue(ArrayOperators):
    """What a variable held when JAX took it apart (`jnp.sin(variable)`, `jax.tree.map`)."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def value(self) -> Any:
        """Returns the value."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Lets NumPy functions take this object."""
        return np.asarray(self._array, dtype=dtype)


# jnp functions take an object only when it is a pytree: a variable is one, of its value.
for _class in (Variable, VariableCopy, VariableValue):
    jax.tree_util.register_pytree_node(
        _class, lambda held: ((held.value(),), None), lambda _, held: VariableValue(held[0])
    )


def is_variable(value: Any) -> bool:
    """Says whether a value is a variable, or a copy of one, which verbs take as it is."""
    return type(value) is Variable or type(value) is VariableCopy


def live() -> list[Variable]:
    """Returns all variables that exist."""
    return list(_live)


def as_value(value: Any, dtype: Any, what: str) -> jax.Array:
    """Returns something that has numbers as an array.

    Raises:
      ValueShapeError: it has none.
    """
    if isinstance(value, ArrayOperators):
        value = value.value()
    try:
        return jnp.asarray(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueShapeError(
            f"{what} needs an array or numbers, got a {type(value).__name__}: {value!r:.80}. "
            f"JAX says: {error}"
        ) from error


def _no_common_value(name: str, verb: str) -> str:
    return (
        f"{name} has a copy of its own on each replica and aggregation NONE, so {verb} has no "
        "common value. Read it in a replica function, or give it an aggregation."
    )
