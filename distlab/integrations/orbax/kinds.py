"""Kinds of leaves: each is saved as an entry, perhaps with an array, and restored from it."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices import jax_internals
from distlab.devices.pieces import first_piece, pieces
from distlab.errors import ArgumentTypeError
from distlab.integrations.orbax.entry import Entry, Saved
from distlab.integrations.orbax.workers import (
    on_host,
    own_entry,
    placed,
    same_on_all_workers,
    workers_fault,
)
from distlab.text.shown import shown
from distlab.values.checks import require_alive
from distlab.values.distributed import Mirrored, PerReplica, Shape
from distlab.variables.kinds import VariableAggregation
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable

Put: TypeAlias = Callable[[], Any]
"""Puts a restored value in its place, and returns the leaf or its replacement."""

_NUMBERS: Final = (bool, int, float)


class Kind(ABC):
    """A kind of leaf."""

    def __init__(self, *types: type) -> None:
        self._types = types

    def accepts(self, leaf: Any) -> bool:
        """Returns whether a value is a leaf of this kind."""
        return isinstance(leaf, self._types)

    @abstractmethod
    def saved(self, name: str, leaf: Any) -> Saved:
        """Returns a leaf as it is written; its array is a copy."""

    @abstractmethod
    def fault(self, leaf: Any, entry: Entry) -> str:
        """Returns why a leaf can't be restored from an entry; empty where it can."""

    @abstractmethod
    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:
        """Places a restored value on the leaf's devices, and changes nothing yet."""


@final
class _Python(Kind):
    """Numbers and strings."""

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        return Saved(Entry("python", value=leaf))

    def fault(self, leaf: Any, entry: Entry) -> str:
        if isinstance(leaf, str):
            fits = isinstance(entry.value, str)
        else:
            one = entry.kind == "value" and entry.shape == ()
            fits = one or (entry.kind == "python" and isinstance(entry.value, _NUMBERS))
        return "" if fits else f"is {type(leaf).__name__} here, and {entry} in the checkpoint"

    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:
        value = entry.value if array is None else array.item()
        return lambda: type(leaf)(value)


@final
class _Position(Kind):
    """Iterators with Grain's `get_state` and `set_state`: distlab's and Grain's."""

    def accepts(self, leaf: Any) -> bool:
        return all(hasattr(leaf, name) for name in ("__next__", "get_state", "set_state"))

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        state = leaf.get_state()
        if isinstance(state, bytes):  # of some of Grain's
            return Saved(Entry("position", dtype="bytes", value=state.decode("latin-1")))
        return Saved(Entry("position", value=state))

    def fault(self, leaf: Any, entry: Entry) -> str:  # noqa: ARG002
        """The iterator itself checks that the position is one of its pipeline."""
        if entry.kind != "position":
            return f"is an iterator here, and {entry} in the checkpoint"
        return workers_fault(entry)

    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:  # noqa: ARG002
        entry = own_entry(entry)
        value = entry.value.encode("latin-1") if entry.dtype == "bytes" else entry.value

        def move() -> Any:
            leaf.set_state(value)
            return leaf

        return move


@final
class _Generator(Kind):
    """NumPy's random generators."""

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        return Saved(Entry("generator", value=leaf.bit_generator.state))

    def fault(self, leaf: Any, entry: Entry) -> str:
        here = type(leaf.bit_generator).__name__
        if entry.kind == "generator" and entry.value["bit_generator"] == here:
            return ""
        return f"is a {here} generator here, and {entry} in the checkpoint"

    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:  # noqa: ARG002
        def move() -> Any:
            leaf.bit_generator.state = entry.value
            return leaf

        return move


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
        own = getattr(leaf, "stacked", getattr(leaf, "array", leaf))
        if entry.key != _key_name(own):
            return f"is {own.dtype}{list(own.shape)} here, and {entry} in the checkpoint"
        if entry.kind == "python" and shape == () and isinstance(entry.value, _NUMBERS):
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
        if array is None:
            array = np.asarray(entry.value, self.form(leaf)[1])
        value = jax.random.wrap_key_data(jnp.asarray(array), impl=entry.key) if entry.key else array
        return self.put(leaf, value, entry)


@final
class _Variable(_ArrayKind):
    """Variables: their total, mean or common value, so that any number of replicas restores it."""

    def own_values(self, leaf: Any) -> int:
        return leaf.strategy.num_replicas_in_sync if _has_own_values(leaf) else 0

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
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
        elif layout.spec:
            array = placed(value, layout.sharding)  # no device receives more than its part
        else:
            array = layout.place(jnp.asarray(value))

        def assign() -> Any:
            leaf.storage.array = array
            return leaf

        return assign


@final
class _ShardedVariable(_ArrayKind):
    """Variables in parts: one array, so that any number of parts restores it."""

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        return _saved(leaf.numpy())

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:
        parts = [_VARIABLES.put(part, rows, entry) for part, rows in leaf.parts_of(value)]

        def assign() -> Any:
            for put in parts:
                put()
            return leaf

        return assign


@final
class _Mirrored(_ArrayKind):
    """Mirrored values: one copy."""

    def form(self, leaf: Any) -> tuple[Shape, str]:
        return _form(leaf.array)

    def saved(self, name: str, leaf: Any) -> Saved:
        require_alive(leaf.array, name)
        return _saved(first_piece(leaf.array))

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:  # noqa: ARG002
        mirrored = Mirrored(placed(value, leaf.array.sharding))
        return lambda: mirrored


@final
class _PerReplica(_ArrayKind):
    """Per-replica values: one component where all are equal, as `replicate` makes them."""

    def form(self, leaf: Any) -> tuple[Shape, str]:
        shape, dtype = _form(leaf.stacked)
        return shape[1:], dtype

    def own_values(self, leaf: Any) -> int:
        return int(leaf.stacked.shape[0])

    def saved(self, name: str, leaf: Any) -> Saved:
        require_alive(leaf.stacked, name)
        if leaf.shapes is None:
            rows = [_saved(row[0]) for _, row in pieces(leaf.stacked)]
            if same_on_all_workers([row.array for row in rows if row.array is not None]):
                return rows[0]
        return _saved(leaf.stacked, "rows", leaf.shapes)

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:
        if entry.kind != "rows":
            broadcast = jnp.broadcast_to if isinstance(value, jax.Array) else np.broadcast_to
            value = broadcast(value, (leaf.stacked.shape[0], *value.shape))
        rows = PerReplica(placed(value, leaf.stacked.sharding), entry.shapes)
        return lambda: rows


@final
class _Keras(_ArrayKind):
    """Keras' variables."""

    def accepts(self, leaf: Any) -> bool:
        keras = sys.modules.get("keras")
        return keras is not None and isinstance(leaf, getattr(keras, "Variable", ()))

    def form(self, leaf: Any) -> tuple[Shape, str]:
        return tuple(leaf.shape), str(leaf.dtype)

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        return _saved(np.asarray(leaf))

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:  # noqa: ARG002
        def assign() -> Any:
            leaf.assign(value)
            return leaf

        return assign


@final
class _Array(_ArrayKind):
    """JAX's and NumPy's arrays and scalars."""

    def saved(self, name: str, leaf: Any) -> Saved:
        require_alive(leaf, name)
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
        if isinstance(array, np.ndarray) and (array.dtype.kind in "OSUMm" or array.dtype.names):
            raise refusal(name, leaf)
        return _saved(array)

    def put(self, leaf: Any, value: Any, entry: Entry) -> Put:  # noqa: ARG002
        new = value[()] if isinstance(leaf, np.generic | complex) else value
        if isinstance(leaf, jax.Array):
            new = placed(value, leaf.sharding) if leaf.committed else jnp.asarray(value)
        return lambda: new


_VARIABLES: Final = _Variable(Variable)
_POSITIONS: Final = _Position()
_KINDS: Final[tuple[Kind, ...]] = (
    _VARIABLES,
    _ShardedVariable(ShardedVariable),
    _Mirrored(Mirrored),
    _PerReplica(PerReplica),
    _Array(jax.Array, np.ndarray, np.generic, complex),
    _Python(str, *_NUMBERS),
    _Generator(np.random.Generator),
    _POSITIONS,
    _Keras(),
)


def kind_of(value: Any) -> Kind | None:
    """Returns the kind of a leaf; None for what is no leaf."""
    return next((kind for kind in _KINDS if kind.accepts(value)), None)


def is_position(leaf: Any) -> bool:
    """Returns whether a leaf is an iterator."""
    return kind_of(leaf) is _POSITIONS


def refusal(name: str, leaf: Any) -> ArgumentTypeError:
    """Returns the error for a value that can't be saved."""
    return ArgumentTypeError(
        f"{name} is {shown(leaf)}, a {type(leaf).__name__}, which a checkpoint can't hold. It "
        "holds variables, arrays, per-replica values, numbers, strings, iterators, nests of "
        "these, and objects with attributes that are these."
    )


def copies_of_total(total: np.ndarray, replicas: int) -> np.ndarray:
    """Returns copies, equal as far as possible, whose sum is a total: TensorFlow's lose a rest."""
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


def _has_own_values(variable: Variable) -> bool:
    none = variable.aggregation is VariableAggregation.NONE
    return variable.storage.layout.copies_differ and none


def _is_key(array: Any) -> bool:
    arrays = isinstance(array, jax.Array | Variable)
    return arrays and bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def _key_name(array: Any) -> str:
    """Returns the name of the random generator whose keys an array holds; empty for numbers."""
    return jax_internals.key_impl(array.dtype) if _is_key(array) else ""


def _saved(
    array: Any,
    kind: Literal["value", "rows"] = "value",
    shapes: tuple[Shape, ...] | None = None,
) -> Saved:
    key = _key_name(array)
    copied = on_host(jax.random.key_data(array) if key else array)
    return Saved(Entry(kind, copied.shape, str(copied.dtype), key, shapes), copied)


def _form(array: Any) -> tuple[Shape, str]:
    """Returns shape and dtype; of random keys, those of their data."""
    if isinstance(array, complex):
        return (), "complex128"
    if _is_key(array):
        array = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(array.shape, array.dtype))
    return tuple(array.shape), str(array.dtype)
