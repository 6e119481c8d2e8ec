"""Values that differ, or are repeated, over the replicas.

`PerReplica` and `Mirrored` are pytree nodes around one global array, so they
pass through `jax.jit`, `jax.grad`, `jax.lax.scan` and `strategy.run` without a
copy. They do not pretend to be arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.jax_internals import uncommitted
from distlab.devices.mesh import ReplicaMesh
from distlab.devices.pieces import pieces
from distlab.errors import StructureError
from distlab.values.not_an_array import NotAnArray

Shape: TypeAlias = tuple[int, ...]


class DistributedValues(NotAnArray):
    """Base of values with one component for each replica."""

    __slots__ = ()

    @property
    @abstractmethod
    def values(self) -> tuple[Any, ...]:
        """The components in replica order, each on its replica's device."""


@final
@jax.tree_util.register_pytree_node_class
class PerReplica(DistributedValues):
    """A value with a component of its own for each replica.

    The components lie in one array `(replicas, ...)` whose row `i` is on
    replica `i`'s device. Components of different shapes (a partial batch, an
    empty replica) lie at the start of rows as large as the largest one, and
    `shapes` says how much of each row is theirs; the rest is never read.

    Attributes:
      stacked: array of shape `(replicas, ...)`, sharded along its first axis.
      shapes: each component's shape, None when all are `stacked.shape[1:]`.
    """

    __slots__ = ("__weakref__", "shapes", "stacked")

    def __init__(self, stacked: Any, shapes: tuple[Shape, ...] | None = None) -> None:
        self.stacked = stacked
        self.shapes = shapes

    @property
    def values(self) -> tuple[Any, ...]:
        """The components in replica order, each on its replica's device."""
        shapes = self.shapes
        return tuple(
            uncommitted(row[0] if shapes is None else row[(0, *map(slice, shapes[replica]))])
            for replica, row in _rows(self.stacked)
        )

    def tree_flatten(self) -> tuple[tuple[Any], tuple[Shape, ...] | None]:
        """Gives JAX the array; the shapes are part of the structure."""
        return (self.stacked,), self.shapes

    @classmethod
    def tree_unflatten(cls, shapes: tuple[Shape, ...] | None, children: tuple[Any]) -> PerReplica:
        """Makes the value again from what `tree_flatten` gave."""
        return cls(children[0], shapes)

    def _repr_html_(self) -> str:
        """Shows in notebooks where each component lies."""
        from distlab.values.reprs import per_replica_html

        return per_replica_html(self)

    def __repr__(self) -> str:
        """Shows shapes and devices, not numbers: those would have to be fetched."""
        dtype = getattr(self.stacked, "dtype", "?")
        shape = tuple(getattr(self.stacked, "shape", ()))
        if self.shapes is None:
            return f"PerReplica({shape[0] if shape else '?'} x {dtype}{list(shape[1:])})"
        return f"PerReplica({dtype}, {', '.join(str(list(s)) for s in self.shapes)})"


@final
@jax.tree_util.register_pytree_node_class
class Mirrored(DistributedValues):
    """A value that every replica holds a whole copy of.

    Attributes:
      array: the value, replicated over the replicas' devices.
    """

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def values(self) -> tuple[Any, ...]:
        """The copies in replica order, each on its replica's device."""
        return tuple(uncommitted(copy) for _, copy in pieces(self.array))

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """Gives JAX the array."""
        return (self.array,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> Mirrored:
        """Makes the value again from what `tree_flatten` gave."""
        return cls(children[0])

    def _repr_html_(self) -> str:
        """Shows in notebooks where the copies lie."""
        from distlab.values.reprs import mirrored_html

        return mirrored_html(self)

    def __repr__(self) -> str:
        """Shows shape and dtype, not numbers."""
        array = self.array
        return f"Mirrored({getattr(array, 'dtype', '?')}{list(getattr(array, 'shape', ()))})"


def stack(components: Sequence[Any], mesh: ReplicaMesh) -> PerReplica:
    """Makes a `PerReplica` of arrays, one for each replica, and places it.

    Args:
      components: Array-likes of one dtype and one rank, one for each local replica, in order.
      mesh: where the replicas are.

    Raises:
      StructureError: the components differ in dtype or in rank.
    """
    arrays = [jnp.asarray(component) for component in components]
    dtypes, ranks = {a.dtype for a in arrays}, {a.ndim for a in arrays}
    if len(dtypes) > 1 or len(ranks) > 1:
        raise StructureError(
            "The components of a per-replica value must have one dtype and one number of "
            f"dimensions, got {[f'{a.dtype}{list(a.shape)}' for a in arrays]}."
        )
    shapes = tuple(a.shape for a in arrays)
    largest = tuple(int(n) for n in np.max(np.array(shapes, dtype=np.int64), axis=0))
    rows = [
        jax.device_put(_pad(array, largest)[None], device)
        for array, device in zip(arrays, mesh.local_devices, strict=True)
    ]
    stacked = jax.make_array_from_single_device_arrays((mesh.replicas, *largest), mesh.split, rows)
    return PerReplica(stacked, None if len(set(shapes)) == 1 else shapes)


def replica_shapes(value: PerReplica) -> tuple[Shape, ...]:
    """Returns each component's shape."""
    if value.shapes is not None:
        return value.shapes
    replicas, *shape = value.stacked.shape
    return (tuple(shape),) * replicas


def _pad(array: jax.Array, shape: Shape) -> jax.Array:
    if array.shape == shape:
        return array
    return jnp.pad(array, [(0, to - n) for n, to in zip(array.shape, shape, strict=True)])


def _rows(stacked: Any) -> list[tuple[int, Any]]:
    """Returns pairs of a replica and its row `(1, ...)`, each row where it lies."""
    rows = pieces(stacked)
    if rows[0][1].shape[0] == 1:
        return rows
    return [(replica, stacked[replica : replica + 1]) for replica in range(stacked.shape[0])]
