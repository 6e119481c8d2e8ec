"""Assignment of some rows of a variable: `scatter_add` and its like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from distlab.context.collectives import Collectives
from distlab.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    UnsupportedError,
    ValueShapeError,
)
from distlab.values.indexed_slices import IndexedSlices
from distlab.variables.kinds import VariableAggregation

Rows: TypeAlias = tuple[jax.Array, jax.Array]
"""Rows, `[rows, ...]`, and the index of each."""


def _divided(array: jax.Array, where: Any, rows: jax.Array) -> jax.Array:
    divisors = jnp.ones_like(array).at[where].multiply(rows)
    return jax.lax.div(array, divisors)  # of integers an integer, as in TensorFlow


COMBINE: Final[dict[str, Callable[[jax.Array, Any, jax.Array], jax.Array]]] = {
    "add": lambda array, where, rows: array.at[where].add(rows),
    "sub": lambda array, where, rows: array.at[where].subtract(rows),
    "mul": lambda array, where, rows: array.at[where].multiply(rows),
    "div": _divided,
    "min": lambda array, where, rows: array.at[where].min(rows),
    "max": lambda array, where, rows: array.at[where].max(rows),
    "update": lambda array, where, rows: array.at[where].set(rows),
}
"""The kinds of scatter: each combines rows with those of an array at some indices."""

_SUMMABLE: Final = frozenset({"add", "sub", "mul", "div"})
"""The kinds that have a meaning for the rows of all replicas together."""


def require_slices(name: str, kind: str, slices: Any) -> IndexedSlices:
    """Returns the slices that a scatter received."""
    if not isinstance(slices, IndexedSlices):
        raise ArgumentTypeError(
            f"{name}.scatter_{kind} needs distlab.IndexedSlices(values, indices), got a "
            f"{type(slices).__name__}. For a whole value use assign."
        )
    return slices


def require_kind(
    name: str, kind: str, aggregation: VariableAggregation, *, on_read: bool, mirrored: bool
) -> None:
    """Checks that a kind of scatter has a meaning for a kind of variable."""
    if on_read:
        raise UnsupportedError(
            f"{name}.scatter_{kind}: a variable with synchronization ON_READ can't be assigned row "
            "by row. Assign the whole value: v.assign(v.value().at[indices].set(rows))."
        )
    first = aggregation in (VariableAggregation.NONE, VariableAggregation.ONLY_FIRST_REPLICA)
    if mirrored and not first and kind not in _SUMMABLE:
        raise UnsupportedError(
            f"{name}.scatter_{kind} needs the aggregation NONE or ONLY_FIRST_REPLICA, got "
            f"{aggregation.name}. Make the variable with one of those."
        )


def checked_rows(
    name: str, kind: str, slices: IndexedSlices, shape: tuple[int, ...], dtype: Any
) -> Rows:
    """Returns rows and indices as arrays that fit a variable."""
    indices, values = jnp.asarray(slices.indices), jnp.asarray(slices.values)
    weak = values.aval.weak_type or not hasattr(slices.values, "dtype")
    if (
        not shape
        or not jnp.issubdtype(indices.dtype, jnp.integer)
        or values.shape != (*indices.shape, *shape[1:])
        or (values.dtype != dtype and not weak)
    ):
        raise ValueShapeError(
            f"{name} is {dtype}{list(shape)}, and scatter_{kind} got rows {values.dtype}"
            f"{list(values.shape)} at indices {indices.dtype}{list(indices.shape)}. Rows have the "
            "shape of the indices and then that of one row of the variable."
        )
    _require_inside(name, f"scatter_{kind}", slices.indices, shape, axes=1)
    rows = values.astype(dtype).reshape(-1, *shape[1:])
    return rows, _not_from_the_end(indices, shape[0]).reshape(-1)


def scattered_nd(name: str, kind: str, array: jax.Array, indices: Any, updates: Any) -> jax.Array:
    """Returns an array with some elements or slices combined."""
    where, values = jnp.asarray(indices), jnp.asarray(updates)
    depth = where.shape[-1] if where.ndim else 0
    weak = values.aval.weak_type or not hasattr(updates, "dtype")
    if (
        not 0 < depth <= array.ndim
        or not jnp.issubdtype(where.dtype, jnp.integer)
        or values.shape != (*where.shape[:-1], *array.shape[depth:])
        or (values.dtype != array.dtype and not weak)
    ):
        raise ValueShapeError(
            f"{name} is {array.dtype}{list(array.shape)}, and scatter_nd_{kind} got updates "
            f"{values.dtype}{list(values.shape)} at indices {where.dtype}{list(where.shape)}. "
            "Updates have the shape of the indices without the last axis, then that of a slice."
        )
    _require_inside(name, f"scatter_nd_{kind}", indices, array.shape, axes=depth)
    each = tuple(
        _not_from_the_end(part, size)
        for part, size in zip(jnp.moveaxis(where, -1, 0), array.shape[:depth], strict=True)
    )
    return COMBINE[kind](array, each, values.astype(array.dtype))


def aggregated(
    rows: Rows, aggregation: VariableAggregation, collectives: Collectives, replicas: int
) -> Rows:
    """Returns the rows that a replica applies, for the rows that the replicas pass."""
    values, indices = rows
    if aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        return collectives.first(values), collectives.first(indices)
    all_values, all_indices = collectives.all_gather([values, indices], 0)
    if aggregation is VariableAggregation.MEAN:
        all_values = (all_values / replicas).astype(values.dtype)
    return all_values, all_indices


def _require_inside(
    name: str, verb: str, indices: Any, shape: tuple[int, ...], *, axes: int
) -> None:
    """Checks indices whose numbers are known."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(indices)):
        return
    given = np.asarray(indices)
    outside = (given < 0) | (given >= np.asarray(shape[:axes] if axes > 1 else shape[0]))
    if outside.any():
        raise InvalidArgumentError(
            f"{name} has the shape {list(shape)}, and {verb} got the index {given[outside][0]}. "
            "Indices count from 0."
        )


def _not_from_the_end(indices: jax.Array, size: int) -> jax.Array:
    """Returns indices of which the negative ones are outside, where JAX counts from the end."""
    if not jnp.issubdtype(indices.dtype, jnp.signedinteger):
        return indices
    return jnp.where(indices < 0, np.int32(size), indices)  # may be too large for int8
