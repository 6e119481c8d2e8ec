"""The kinds of leaves that are arrays, one for all replicas or one for each."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any, Literal, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices import jax_internals
from distlab.devices.pieces import first_piece, pieces
from distlab.errors import ArgumentTypeError
from distlab.integrations.orbax.entry import Entry, Saved
from distlab.integrations.orbax.kinds import NUMBERS, Kind, Put, refusal
from distlab.integrations.orbax.workers import on_host, placed, same_on_all_workers
from distlab.values.checks import require_alive
from distlab.values.distributed import Mirrored, PerReplica, Shape
from distlab.values.plain_arrays import refusal_of
from distlab.variables.kinds import VariableAggregation
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable


class _ArrayKind(Kind):
    """Leaves that are restored from an array."""

    @abstractmethod
    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:
        """Places an array, of random keys where the entry is one of keys."""

    def form(self, leaf: Any) -> tuple[Shape, str]:
        """Returns the shape and dtype that a leaf needs."""
        return _form(leaf)

    def own_values(self, leaf: Any) -> int:  # noqa: ARG002
        """Returns how many values of their own the replicas have; 0 where they share one."""
        return 0

    def fault(self, leaf: Any, entry: Entry) -> str:
        """Shape and dtype must be equal; values of each replica need as many replicas."""
        shape, dtype = self.form(leaf)
        own = array_of(leaf)
        if entry.key != key_name(own):
            return f"is {own.dtype}{list(own.shape)} here, and {entry} in the checkpoint"
        if entry.kind == "python" and shape == () and isinstance(entry.value, NUMBERS):
            return ""
        if entry.kind == "value" and (entry.shape, entry.dtype) == (shape, dtype):
            return ""
        own_values = self.own_values(leaf)
        if own_values and entry.kind == "rows" and entry.dtype == dtype:
            if own_values != entry.shape[0]:
                return (
                    f"has a value of its own on each replica, of which {entry.shape[0]} were "
                    f"saved and there are {own_values} now (with aggregation SUM or MEAN, any "
                    "number restores it)"
                )
            if entry.shapes or entry.shape[1:] == shape:
                return ""
        return f"is {dtype}{list(shape)} here, and {entry} in the checkpoint"

    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:
        """Places the array on the leaf's devices."""
        if array is None:
            array = np.asarray(entry.value, self.form(leaf)[1])
        value = jax.random.wrap_key_data(jnp.asarray(array), impl=entry.key) if entry.key else array
        return self.put(leaf, value, entry)


@final
class VariableKind(_ArrayKind):
    """Variables: their total, mean or common value, so that any number of replicas restores it."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is a variable."""
        return isinstance(leaf, Variable)

    def own_values(self, leaf: Any) -> int:
        """Returns the number of copies without a common value: ON_READ with NONE."""
        return leaf.strategy.num_replicas_in_sync if _has_own_values(leaf) else 0

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        """Returns the common value; where there is none, all copies."""
        if _has_own_values(leaf):
            return _saved(leaf.storage.array, "rows")
        return _saved(leaf.value())

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:
        """Places copies that the variable's own kind aggregates to the saved value."""
        layout, strategy = leaf.storage.layout, leaf.strategy
        if entry.kind == "rows":
            array = placed(value, strategy.mesh.split)
        elif layout.copies_differ and leaf.aggregation is VariableAggregation.SUM:
            rows = copies_of_total(np.asarray(value), strategy.num_replicas_in_sync)
            array = placed(rows, strategy.mesh.split)
        else:
            array = layout.place(jnp.asarray(value))

        def assign() -> Any:
            leaf.storage.array = array
            return leaf

        return assign


@final
class ShardedVariableKind(_ArrayKind):
    """Variables in parts: one array, so that any number of parts restores it."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is one."""
        return isinstance(leaf, ShardedVariable)

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        """Returns the whole value."""
        return _saved(leaf.numpy())

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:
        """Places each part's rows on its parameter server."""
        whole = VariableKind()
        parts = [whole.put(part, rows, entry) for part, rows in leaf.parts_of(value)]

        def assign() -> Any:
            for put in parts:
                put()
            return leaf

        return assign


@final
class MirroredKind(_ArrayKind):
    """Mirrored values: one copy."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is one."""
        return isinstance(leaf, Mirrored)

    def form(self, leaf: Any) -> tuple[Shape, str]:
        """Returns those of a copy."""
        return _form(leaf.array)

    def saved(self, name: str, leaf: Any) -> Saved:
        """Returns the first copy."""
        require_alive(leaf.array, name)
        return _saved(first_piece(leaf.array))

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:  # noqa: ARG002
        """Copies it to each replica's device."""
        mirrored = Mirrored(placed(value, leaf.array.sharding))
        return lambda: mirrored


@final
class PerReplicaKind(_ArrayKind):
    """Per-replica values: one component where all are equal, as `replicate` makes them."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is one."""
        return isinstance(leaf, PerReplica)

    def form(self, leaf: Any) -> tuple[Shape, str]:
        """Returns those of a component."""
        shape, dtype = _form(leaf.stacked)
        return shape[1:], dtype

    def own_values(self, leaf: Any) -> int:
        """Returns the number of components."""
        return int(leaf.stacked.shape[0])

    def saved(self, name: str, leaf: Any) -> Saved:
        """Returns the first component where all are equal, else all."""
        require_alive(leaf.stacked, name)
        if leaf.shapes is None:
            rows = [_saved(row[0]) for _, row in pieces(leaf.stacked)]
            if same_on_all_workers([row.array for row in rows if row.array is not None]):
                return rows[0]
        return _saved(leaf.stacked, "rows", leaf.shapes)

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:
        """Places a component on each replica's device."""
        if entry.kind != "rows":
            broadcast = jnp.broadcast_to if isinstance(value, jax.Array) else np.broadcast_to
            value = broadcast(value, (leaf.stacked.shape[0], *value.shape))
        rows = PerReplica(placed(value, leaf.stacked.sharding), entry.shapes)
        return lambda: rows


@final
class KerasKind(_ArrayKind):
    """Keras' variables."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is one."""
        keras = sys.modules.get("keras")
        return keras is not None and isinstance(leaf, getattr(keras, "Variable", ()))

    def form(self, leaf: Any) -> tuple[Shape, str]:
        """Returns those that Keras knows."""
        return tuple(leaf.shape), str(leaf.dtype)

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        """Returns its value."""
        return _saved(np.asarray(leaf))

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:  # noqa: ARG002
        """Assigns it."""

        def assign() -> Any:
            leaf.assign(value)
            return leaf

        return assign


@final
class Array(_ArrayKind):
    """JAX's and NumPy's arrays and scalars."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is one."""
        return isinstance(leaf, jax.Array | np.ndarray | np.generic | complex)

    def saved(self, name: str, leaf: Any) -> Saved:
        """Returns it; strings, objects and dates have no array form."""
        require_alive(leaf, name)
        if why_not := refusal_of(leaf, name):
            raise ArgumentTypeError(why_not)
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        if isinstance(array, np.ndarray) and array.dtype.kind in "OSUMm":
            raise refusal(name, leaf)
        return _saved(array)

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:  # noqa: ARG002
        """Places it where the leaf lies."""
        new = value[()] if isinstance(leaf, np.generic | complex) else value
        if isinstance(leaf, jax.Array):
            bound = leaf.committed
            new = placed(value, leaf.sharding) if bound else jnp.asarray(value)
        return lambda: new


def copies_of_total(total: np.ndarray, replicas: int) -> np.ndarray:
    """Returns copies whose sum is exactly a total, equal ones as far as that goes.

    TensorFlow gives each copy the total divided by the replicas, which loses the remainder of
    integers.
    """
    copies = np.zeros((replicas, *total.shape), total.dtype)
    copies[0] = total
    if jnp.issubdtype(total.dtype, jnp.integer):
        share, rest = np.divmod(total, replicas)
        copies[:] = share
        copies[0] += rest
    elif jnp.issubdtype(total.dtype, jnp.inexact):
        shares = np.broadcast_to((total / replicas).astype(total.dtype), copies.shape)
        exact = np.asarray(jnp.sum(jnp.asarray(shares), axis=0)).astype(total.dtype) == total
        copies = np.where(exact, shares, copies)
    return copies


def array_of(leaf: Any) -> Any:
    """Returns the array of a distributed value; anything else as it is."""
    return getattr(leaf, "stacked", getattr(leaf, "array", leaf))


def key_name(array: Any) -> str:
    """Returns the name of the random generator whose keys an array holds; empty for numbers."""
    return jax_internals.key_impl(array.dtype) if _is_key(array) else ""


def _has_own_values(variable: Variable) -> bool:
    none = variable.aggregation is VariableAggregation.NONE
    return variable.storage.layout.copies_differ and none


def _is_key(array: Any) -> bool:
    arrays = isinstance(array, jax.Array | Variable)
    return arrays and bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def _saved(
    array: Any,
    kind: Literal["value", "rows"] = "value",
    shapes: tuple[Shape, ...] | None = None,
) -> Saved:
    key = key_name(array)
    if key:
        array = jax.random.key_data(array)
    copied = on_host(array)
    entry = Entry(kind, copied.shape, str(copied.dtype), key, shapes)
    return Saved(entry, copied)


def _form(array: Any) -> tuple[Shape, str]:
    """Returns shape and dtype; of random keys, those of their data."""
    if isinstance(array, complex):
        return (), "complex128"
    if _is_key(array):
        array = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(array.shape, array.dtype))
    return tuple(array.shape), str(array.dtype)
