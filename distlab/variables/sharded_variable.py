"""A variable in parts, each of which is a variable on a parameter server of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.context.host import Host
from distlab.devices import jax_internals
from distlab.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
)
from distlab.text.shown import shown
from distlab.values.indexed_slices import IndexedSlices
from distlab.variables import scattering
from distlab.variables.conversion import as_value, checked_value
from distlab.variables.kinds import VariableAggregation, VariableSynchronization
from distlab.variables.variable import Variable
from distlab.variables.verbs import VariableVerbs


@final
class ShardedVariable(VariableVerbs):
    """A variable whose rows are divided over several variables (TensorFlow's `ShardedVariable`).

    `distlab.Variable` makes it in the scope of a `ParameterServerStrategy` with a
    `variable_partitioner`, where that divides the variable. It is read, assigned and computed
    with as one variable; a checkpoint holds it as one array, which restores into any other number
    of parts. Iterating yields the parts, as in TensorFlow.

    Args:
      variables: The parts in order, which have equal dtypes and differ in the first axis alone.
      name: The name that messages show.

    Attributes:
      name: The name that messages show.
      shape: The shape of the whole.
      dtype: The dtype.

    Raises:
      ArgumentTypeError: `variables` is not a list of variables, or is empty.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2701"], "ps": ["b:2701", "c:2701"]})
      >>> servers = [
      ...     dl.Server(cluster, job_name=job, task_index=n)
      ...     for job, n in [("worker", 0), ("ps", 0), ("ps", 1)]
      ... ]
      >>> strategy = dl.ParameterServerStrategy(
      ...     dl.cluster_resolver.SimpleClusterResolver(cluster),
      ...     variable_partitioner=dl.experimental.partitioners.FixedShardsPartitioner(2),
      ... )
      >>> with strategy.scope():
      ...     table = dl.Variable([[0.0], [1.0], [2.0]], name="table")
      >>> [(part.name, part.shape, part.parameter_server) for part in table.variables]
      [('table/part_0', (2, 1), 0), ('table/part_1', (1, 1), 1)]
      >>> table.assign_add([[10.0], [10.0], [10.0]]).numpy().tolist()
      [[10.0], [11.0], [12.0]]
    """

    def __init__(self, variables: Sequence[Variable], name: str = "ShardedVariable") -> None:
        _require_parts(variables)
        self.variables: list[Variable] = list(variables)
        self.name = name
        first = self.variables[0]
        counts = [part.shape[0] for part in self.variables]
        self._bounds: list[int] = [0, *np.cumsum(counts).tolist()]
        self.shape: tuple[int, ...] = (self._bounds[-1], *first.shape[1:])
        self.dtype = first.dtype

    @property
    def trainable(self) -> bool:
        """True if an optimizer should update the variable."""
        return self.variables[0].trainable

    @property
    def aggregation(self) -> VariableAggregation:
        """The aggregation of replicas' assignments."""
        return self.variables[0].aggregation

    @property
    def synchronization(self) -> VariableSynchronization:
        """ON_WRITE or ON_READ."""
        return self.variables[0].synchronization

    @property
    def strategy(self) -> Host:
        """The strategy in whose scope the variable was made."""
        return self.variables[0].strategy

    @property
    def distribute_strategy(self) -> Host | None:
        """The strategy in whose scope the variable was made; None for the default strategy."""
        return self.variables[0].distribute_strategy

    def __iter__(self) -> Iterator[Any]:
        """Yields the parts, as in TensorFlow, and not the rows."""
        return iter(self.variables)

    # ---- reading

    def value(self) -> jax.Array:
        """Returns the parts' present values as one array."""
        return jnp.concatenate([part.value() for part in self.variables])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Converts this variable for NumPy functions; waits for its value."""
        del copy  # the parts are copied into one array
        whole = np.concatenate([part.numpy() for part in self.variables])
        return whole if dtype is None else whole.astype(dtype)

    def sparse_read(self, indices: Any, name: Any = None) -> jax.Array:
        """Returns rows by their indices, without making one array of all rows.

        Args:
          indices: Whole numbers from 0, of any shape.
          name: Ignored; accepted for compatibility with TensorFlow.

        Returns:
          `[*indices.shape, *row]`: the rows in the order of the indices.

        Raises:
          InvalidArgumentError: An index is outside of the variable. In a compiled function, where
            indices are not known, the nearest row takes its place.

        Example:
          >>> import distlab as dl
          >>> parts = [dl.Variable([0.0, 1.0]), dl.Variable([2.0])]
          >>> dl.ShardedVariable(parts).sparse_read([2, 0]).tolist()
          [2.0, 0.0]
        """
        del name
        where = as_value(indices, None, f"{self.name}.sparse_read")
        if not isinstance(where, jax.core.Tracer):
            _require_rows(self, np.asarray(where))
        where = jnp.maximum(_widened(where), 0)  # JAX counts negative ones from the end
        rows = self.variables[0].value()[where]
        for part, begin in zip(self.variables[1:], self._bounds[1:], strict=False):
            inside = jnp.expand_dims(where >= begin, range(where.ndim, rows.ndim))
            rows = jnp.where(inside, part.value()[jnp.maximum(where - begin, 0)], rows)
        return rows

    # ---- assigning

    def _update(self, operand: Any, verb: str) -> ShardedVariable:
        for part, rows in self.parts_of(checked_value(self, operand, verb)):
            part._update(rows, verb)
        return self

    def parts_of(self, value: Any) -> list[tuple[Variable, Any]]:
        """Returns each part with its rows of an array of this variable's shape."""
        return [
            (part, value[begin:end])
            for part, (begin, end) in zip(self.variables, pairwise(self._bounds), strict=True)
        ]

    def _scatter(self, kind: str, slices: Any) -> ShardedVariable:
        slices = scattering.require_slices(self.name, kind, slices)
        rows, indices = scattering.checked_rows(self.name, kind, slices, self.shape, self.dtype)
        for part, (begin, end) in zip(self.variables, pairwise(self._bounds), strict=True):
            own = _rows_between(begin, end, rows, _widened(indices))
            if own.indices.size:
                part._scatter(kind, own)
        return self

    def _scatter_nd(self, kind: str, indices: Any, updates: Any) -> ShardedVariable:
        return self.assign(scattering.scattered_nd(self.name, kind, self.value(), indices, updates))

    def __repr__(self) -> str:
        """Shows name, dtype, shape and the number of parts."""
        return (
            f"<ShardedVariable {self.name}: {self.dtype}{list(self.shape)}, "
            f"{len(self.variables)} parts>"
        )


def _widened(indices: jax.Array) -> jax.Array:
    """Returns indices that do not wrap where a part's first row is subtracted, as uint8 does."""
    narrow = indices.dtype.itemsize < np.dtype(np.int32).itemsize
    return indices.astype(jnp.int32) if narrow else indices


def _rows_between(begin: int, end: int, rows: jax.Array, indices: jax.Array) -> IndexedSlices:
    """Returns those of some rows whose index is in a part, by their index there."""
    if not isinstance(indices, jax.core.Tracer):
        numbers = np.asarray(indices)
        (own,) = np.nonzero((numbers >= begin) & (numbers < end))
        return IndexedSlices(rows[own], numbers[own] - begin)
    # What is traced has no numbers to choose by. A scatter leaves out rows beyond the end.
    inside = (indices >= begin) & (indices < end)
    return IndexedSlices(rows, jnp.where(inside, indices - begin, end - begin))


def _require_rows(variable: ShardedVariable, indices: np.ndarray) -> None:
    outside = (indices < 0) | (indices >= variable.shape[0])
    if outside.any():
        raise InvalidArgumentError(
            f"{variable.name} has {variable.shape[0]} rows, and sparse_read got the index "
            f"{indices[outside][0]}. Pass indices from 0 to {variable.shape[0] - 1}."
        )


def _require_parts(variables: Any) -> None:
    if (
        not isinstance(variables, list | tuple)
        or not variables
        or not all(isinstance(part, Variable) for part in variables)
    ):
        raise ArgumentTypeError(
            f"A ShardedVariable needs a list of variables, got {shown(variables)}. Pass its parts "
            "in order."
        )


jax_internals.register_array_like(ShardedVariable, ShardedVariable.__jax_array__)
