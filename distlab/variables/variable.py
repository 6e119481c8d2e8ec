"""Variables: named arrays on the replicas' devices that can be assigned.

A variable made in a strategy's scope is one global array. A replica function reads
and assigns it as if it were local: `run` passes its value to the program, and
stores the new one afterwards. Programs that keep their state in pytrees need no
variables.
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

    In a strategy's scope every replica has a copy. In a replica function,
    `aggregation` reduces the values that the replicas assign: by SUM, MEAN or
    ONLY_FIRST_REPLICA. With NONE each replica writes its own copy, which suits
    equal values, such as all-reduced gradients. With `synchronization=ON_READ` each
    replica always writes its own copy, and a read in cross-replica context
    aggregates the copies.

    Args:
      initial_value: An array-like, or a function without arguments that returns one.
      trainable: Whether an optimizer should update the variable, for your own code;
        true by default, and false when ON_READ.
      name: The name that pages and messages show; `variable_N` by default.
      dtype: The dtype; by default that of `initial_value`.
      synchronization: AUTO (the same as ON_WRITE), ON_WRITE or ON_READ.
      aggregation: How replicas' assignments, or ON_READ copies, are aggregated.

    Attributes:
      name: The name that pages and messages show.
      strategy: The strategy in whose scope the variable was made.
      shape: The shape of one copy.
      dtype: The dtype.
      trainable: Whether an optimizer should update the variable.
      synchronization: ON_WRITE or ON_READ.
      aggregation: How replicas' assignments, or ON_READ copies, are aggregated.
      storage: The storage of the copies.

    Raises:
      ValueShapeError: The initial value is neither an array nor numbers, or an integer
        variable has the aggregation MEAN.
      ArgumentTypeError: The name or another argument has a wrong type.
      ContextError: The variable is made inside a function that is being traced.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     total = dl.Variable(10.0, name="total", aggregation=dl.VariableAggregation.SUM)
      >>> def step():
      ...     total.assign_add(dl.get_replica_context().replica_id_in_sync_group + 1.0)
      >>> strategy.run(step)
      >>> total, float(total)
      (<Variable total: float32[], replicated>, 13.0)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Variable:
        """Makes one variable for all replicas when a replica function makes it."""
        if scopes.in_cross_replica_context() or not scopes.current_strategy().distributed:
            return super().__new__(cls)
        label = str(kwargs.get("name") or "A variable")
        return get_replica_context().collectives.create(lambda: cls(*args, **kwargs), label)

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
            return  # initialized in __new__, for all replicas
        if name is not None and not isinstance(name, str):
            raise ArgumentTypeError(
                f"A variable's name must be a string, got {name!r:.80}. Leave it out for a default "
                "name."
            )
        if trainable is not None and not isinstance(trainable, bool):
            raise ArgumentTypeError(
                f"trainable must be True, False or None, got {trainable!r:.80}. Pass a name as "
                "name=..."
            )
        number = next(_numbers)
        self.name = name or f"variable_{number}"
        if jax_internals.being_staged():
            raise ContextError(
                f"{self.name} would be made inside jax.jit, once for each compilation. Make "
                "variables outside of it, in strategy.scope()."
            )
        if synchronization is VariableSynchronization.NONE:
            raise ValueShapeError(
                f"{self.name}: synchronization NONE has no meaning for a distributed variable. "
                "Use ON_WRITE (copies stay equal) or ON_READ (each replica writes its own copy)."
            )
        check_kinds(self.name, synchronization, aggregation)
        value = initial_value() if callable(initial_value) else initial_value
        array = as_value(value, dtype, self.name)
        if aggregation is VariableAggregation.MEAN and not jnp.issubdtype(array.dtype, jnp.inexact):
            raise ValueShapeError(
                f"{self.name} is {array.dtype}: a MEAN of integers is not an integer. Use SUM or "
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
        """Returns the value of this replica; outside of a replica function, the common value.

        The common value is on the first copy's device. For an ON_READ variable it
        aggregates the copies.

        Raises:
          ContextError: The read is inside a user's own `jax.jit`, which would compile the
            present value in.
          ValueShapeError: The copies are ON_READ and their aggregation is NONE.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([1.0, 2.0])
          >>> v.value().tolist()
          [1.0, 2.0]
        """
        frame = frames.current()
        if frame is not None:
            merging = scopes.merging()
            if merging is None or not self._on_read:
                return frame.get(self)
            return self._aggregate(frame.get(self), merging, "read_value")
        if jax_internals.being_staged():
            raise ContextError(
                f"{self.name} was read inside jax.jit, which would compile its present value in. "
                "Pass variable.value() to the function as an argument, or use strategy.run."
            )
        if self.storage.layout.copies_differ:
            return self._aggregated_copies()
        return self.storage.first()

    def read_value(self) -> jax.Array:
        """Returns `value()` (TensorFlow's other name for it)."""
        return self.value()

    def numpy(self) -> np.ndarray:
        """Waits for the value and returns it as a NumPy array."""
        return self.__array__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts this variable for NumPy functions; waits for its value."""
        return copy_events.to_host(
            self.value(), dtype, strategy=self.strategy.number, what=self.name
        )

    @functools.cached_property
    def values(self) -> tuple[VariableCopy, ...]:
        """The copies in replica order, each of which can be read and assigned."""
        return tuple(VariableCopy(self, replica) for replica in self.storage.copies())

    # ---- assigning

    def assign(self, value: Any) -> Variable:
        """Assigns a new value and returns this variable.

        Args:
          value: An array-like of this variable's shape and dtype.

        Raises:
          ValueShapeError: The shape or dtype differs, or replicas assign values that the
            variable's aggregation can't reduce.
          ContextError: The call is inside another strategy's scope or `run`, or inside a
            user's own `jax.jit`.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([1.0, 2.0])
          >>> v.assign([5.0, 6.0]).numpy().tolist()
          [5.0, 6.0]
        """
        return self._update(value, "assign", lambda _, new: new)

    def assign_add(self, delta: Any) -> Variable:
        """Adds to the value and returns this variable; raises what `assign` raises.

        Example:
          >>> import distlab as dl
          >>> float(dl.Variable(1.0).assign_add(2.0))
          3.0
        """
        return self._update(delta, "assign_add", jnp.add)

    def assign_sub(self, delta: Any) -> Variable:
        """Subtracts from the value and returns this variable; raises what `assign` raises.

        Example:
          >>> import distlab as dl
          >>> float(dl.Variable(1.0).assign_sub(0.25))
          0.75
        """
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
        # Read before the replicas synchronize: the first to continue changes a shared copy.
        old = None if verb == "assign" else frame.get(self)
        if scopes.in_cross_replica_context():
            array = self._value_of_each_copy(array, verb)
        elif not self._on_read:
            array = self._assigned_by_replicas(operand, array, verb, get_replica_context())
        frame.set(self, combine(old, array))
        return self

    def _assigned_by_replicas(
        self, operand: Any, array: jax.Array, verb: str, context: ReplicaContext
    ) -> jax.Array:
        """Returns the value for this replica's copy when every replica assigns one."""
        if context.num_replicas_in_sync == 1:
            return array
        if not self.strategy.distributed:
            return self._assigned_in_turn(array, verb, context)
        if self.aggregation is VariableAggregation.NONE:
            if self.storage.layout.one_copy:
                raise ValueShapeError(
                    f"{self.name} has one copy for {context.num_replicas_in_sync} replicas and no "
                    f"aggregation, so {verb} in a replica function has no meaning. Make it with an "
                    "aggregation."
                )
            return array
        if isinstance(operand, bool | int | float):
            if self.aggregation is VariableAggregation.SUM:
                raise ValueShapeError(
                    f"{self.name}.{verb}({operand!r}): a Python number is the same on all "
                    "replicas, so its SUM is ambiguous. Pass an array, or use aggregation MEAN."
                )
            first = context.collectives.first
            return first(array) if self.storage.layout.one_copy else array
        return self._aggregate(array, context.collectives, verb)

    def _assigned_in_turn(self, array: jax.Array, verb: str, context: ReplicaContext) -> jax.Array:
        """Returns the value after each replica has assigned this variable of no strategy."""
        if frames.is_eager():
            return array  # eager replicas assign it one after another
        if verb == "assign":
            last = context.replica_id_in_sync_group == context.num_replicas_in_sync - 1
            array = jnp.where(last, array, jnp.zeros_like(array))
        total: jax.Array = context.all_reduce(ReduceOp.SUM, array)
        return total.astype(self.dtype)

    def _aggregate(self, array: jax.Array, collectives: Collectives, verb: str) -> jax.Array:
        """Returns the replicas' values as one, by this variable's aggregation."""
        if self.aggregation is VariableAggregation.NONE:
            raise ValueShapeError(_no_common_value(self.name, verb))
        if self.aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
            return collectives.first(array)
        (reduced,) = collectives.all_reduce(ReduceOp[self.aggregation.name], [array])
        return reduced.astype(self.dtype)

    def _update_all(self, array: jax.Array, verb: str, combine: Callable[[Any, Any], Any]) -> None:
        """Assigns every copy from cross-replica context."""
        placed = self.storage.layout.place(self._value_of_each_copy(array, verb))
        with in_flight.dispatching:  # no step or thread may assign between the read and the write
            self.storage.array = placed if verb == "assign" else combine(self.storage.array, placed)

    def _value_of_each_copy(self, array: jax.Array, verb: str) -> jax.Array:
        """Returns the value of each copy for a value assigned in cross-replica context."""
        if not self._on_read or self.aggregation is not VariableAggregation.SUM:
            return array
        if verb != "assign":
            raise ValueShapeError(
                f"{self.name}.{verb} outside of a replica function is not defined for ON_READ "
                "with SUM: it does not name a copy. Use assign, which divides the value."
            )
        return (array / self.strategy.num_replicas_in_sync).astype(self.dtype)

    def _aggregated_copies(self) -> jax.Array:
        """Returns the copies of an ON_READ variable as one value, on the first local device."""
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
          ValueShapeError: The shape or dtype is not this variable's.
        """
        array = as_value(value, None, f"{self.name}.{verb}")
        weak = array.aval.weak_type or not hasattr(value, "dtype")
        if array.shape != self.shape or (array.dtype != self.dtype and not weak):
            raise ValueShapeError(
                f"{self.name} is {self.dtype}{list(self.shape)}, and {verb} got "
                f"{array.dtype}{list(array.shape)}. Pass a value of that shape and dtype "
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
        """Returns HTML for notebooks: the device of each copy and its first numbers."""
        from distlab.values.reprs import variable_html

        return variable_html(self)

    def __repr__(self) -> str:
        """Shows name, dtype, shape and layout; numbers would have to be copied."""
        return f"<Variable {self.name}: {self.dtype}{list(self.shape)}, {self.storage.layout.name}>"


@final
class VariableValue(ArrayOperators):
    """The value of a variable that JAX flattened, as in `jax.tree.map` or `jnp.sin(variable)`."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def value(self) -> Any:
        """Returns the value."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts the value for NumPy functions."""
        return np.asarray(self._array, dtype=dtype)


# jnp functions accept only objects that are pytrees: a variable is a pytree of its value.
for _class in (Variable, VariableCopy, VariableValue):
    jax.tree_util.register_pytree_node(
        _class, lambda held: ((held.value(),), None), lambda _, held: VariableValue(held[0])
    )


def is_variable(value: Any) -> bool:
    """Returns whether a value is a variable or a copy of one, which verbs do not flatten."""
    return type(value) is Variable or type(value) is VariableCopy


def live() -> list[Variable]:
    """Returns all existing variables."""
    return list(_live)


def as_value(value: Any, dtype: Any, what: str) -> jax.Array:
    """Returns an array-like or a variable as an array.

    Args:
      value: The array-like or variable.
      dtype: The dtype of the result; None keeps that of the value.
      what: The name of the variable or verb, for the message.

    Raises:
      ValueShapeError: The value is neither an array nor numbers.
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
