"""Assignment of some rows of a variable: `scatter_add` and its like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Self, TypeAlias

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


class Scatters(ABC):
    """The methods of a variable or a copy that assign some of its rows.

    An index outside of the variable is an `InvalidArgumentError`. In a compiled function the
    numbers of computed indices are not known: there the row is left out, as on TensorFlow's GPUs.
    """

    __slots__ = ()

    @abstractmethod
    def _scatter(self, kind: str, slices: Any) -> Self:
        """Combines rows with the present ones, and returns this variable."""

    def scatter_add(self, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Self:
        """Adds rows to those with their indices, as `tf.Variable.scatter_add`.

        In a replica function, the aggregation SUM adds the rows of all replicas, MEAN adds them
        divided by the number of replicas, ONLY_FIRST_REPLICA adds those of the first replica,
        and NONE adds a replica's rows to its own copy.

        Args:
          sparse_delta: The `IndexedSlices`.
          use_locking: Ignored: an assignment is never half done.
          name: Ignored; accepted for compatibility with TensorFlow.

        Raises:
          ArgumentTypeError: `sparse_delta` is not `IndexedSlices`.
          ValueShapeError: The rows do not fit the variable.
          InvalidArgumentError: An index is outside of the variable.
          UnsupportedError: The variable is ON_READ, which TensorFlow does not support either.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([1.0, 2.0, 3.0])
          >>> v.scatter_add(dl.IndexedSlices([10.0, 10.0], [0, 2])).numpy().tolist()
          [11.0, 2.0, 13.0]
        """
        del use_locking, name
        return self._scatter("add", sparse_delta)

    def scatter_sub(self, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Self:
        """Subtracts rows; see `scatter_add`."""
        del use_locking, name
        return self._scatter("sub", sparse_delta)

    def scatter_mul(self, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Self:
        """Multiplies by rows; see `scatter_add`."""
        del use_locking, name
        return self._scatter("mul", sparse_delta)

    def scatter_div(self, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Self:
        """Divides by rows; see `scatter_add`."""
        del use_locking, name
        return self._scatter("div", sparse_delta)

    def scatter_min(self, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Self:
        """Takes the minima with rows; see `scatter_update`."""
        del use_locking, name
        return self._scatter("min", sparse_delta)

    def scatter_max(self, sparse_delta: Any, use_locking: bool = False, name: Any = None) -> Self:
        """Takes the maxima with rows; see `scatter_update`."""
        del use_locking, name
        return self._scatter("max", sparse_delta)

    def scatter_update(
        self, sparse_delta: Any, use_locking: bool = False, name: Any = None
    ) -> Self:
        """Replaces rows, as `tf.Variable.scatter_update`.

        Args:
          sparse_delta: The `IndexedSlices`.
          use_locking: Ignored: an assignment is never half done.
          name: Ignored; accepted for compatibility with TensorFlow.

        Raises:
          UnsupportedError: The variable is mirrored with the aggregation SUM or MEAN, or ON_READ,
            which TensorFlow does not support either.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([1.0, 2.0, 3.0])
          >>> v.scatter_update(dl.IndexedSlices([10.0], [1])).numpy().tolist()
          [1.0, 10.0, 3.0]
        """
        del use_locking, name
        return self._scatter("update", sparse_delta)

    @abstractmethod
    def _scatter_nd(self, kind: str, indices: Any, updates: Any) -> Self:
        """Combines elements or rows with the present ones, and returns this variable."""

    def scatter_nd_add(self, indices: Any, updates: Any, name: Any = None) -> Self:
        """Adds to elements or slices, as `tf.Variable.scatter_nd_add`.

        Args:
          indices: `[..., depth]`: each names an element, or a slice when `depth` is below the
            variable's rank.
          updates: `[..., slice]`: what to add to each.
          name: Ignored; accepted for compatibility with TensorFlow.

        Raises:
          UnsupportedError: The variable has copies on several replicas, for which TensorFlow does
            not support it either.
          ValueShapeError: The shapes do not fit the variable.
          InvalidArgumentError: An index is outside of the variable.

        Example:
          >>> import distlab as dl
          >>> v = dl.Variable([[1.0, 2.0], [3.0, 4.0]])
          >>> v.scatter_nd_add([[0, 1], [1, 0]], [10.0, 20.0]).numpy().tolist()
          [[1.0, 12.0], [23.0, 4.0]]
        """
        del name
        return self._scatter_nd("add", indices, updates)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: Any = None) -> Self:
        """Subtracts from elements or slices; see `scatter_nd_add`."""
        del name
        return self._scatter_nd("sub", indices, updates)

    def scatter_nd_update(self, indices: Any, updates: Any, name: Any = None) -> Self:
        """Replaces elements or slices; see `scatter_nd_add`."""
        del name
        return self._scatter_nd("update", indices, updates)

    def scatter_nd_min(self, indices: Any, updates: Any, name: Any = None) -> Self:
        """Takes the minima with elements or slices; see `scatter_nd_add`."""
        del name
        return self._scatter_nd("min", indices, updates)

    def scatter_nd_max(self, indices: Any, updates: Any, name: Any = None) -> Self:
        """Takes the maxima with elements or slices; see `scatter_nd_add`."""
        del name
        return self._scatter_nd("max", indices, updates)


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
