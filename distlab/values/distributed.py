"""Values with a component for each replica.

`PerReplica` and `Mirrored` are pytree nodes around one global array, so they
pass through `jax.jit`, `jax.grad`, `jax.lax.scan` and `strategy.run` without a
copy. They are not arrays, and refuse the operations of arrays.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from distlab.devices import in_flight
from distlab.devices.jax_internals import placing, uncommitted
from distlab.devices.mesh import ReplicaMesh, devices_each, local_positions, replica_mesh
from distlab.devices.pieces import pieces
from distlab.errors import (
    DonatedError,
    StructureError,
)
from distlab.processes import group
from distlab.text.shown import shown
from distlab.values.components_text import components_text
from distlab.values.not_an_array import NotAnArray
from distlab.values.padding import common_shape, padded, place_of
from distlab.values.stacks import remember_equal_rows
from distlab.values.wide_integers import require_kept

Shape: TypeAlias = tuple[int, ...]


class DistributedValues(NotAnArray):
    """Base class of values with one component for each replica.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> ids = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group)
      >>> isinstance(ids, dl.DistributedValues)
      True
      >>> [int(component) for component in ids.values]
      [0, 1]
    """

    __slots__ = ()

    @property
    @abstractmethod
    def values(self) -> tuple[Any, ...]:
        """The components in replica order, each on its replica's device."""

    @abstractmethod
    def component_type(self) -> tuple[Any, int]:
        """Returns the dtype of each component, None where it has none, and its rank."""

    def is_flag(self) -> bool:
        """Returns whether each replica's value is a truth value, or one whole number."""
        dtype, rank = self.component_type()
        if dtype is None:
            return False
        return bool(dtype == np.bool_ or (rank == 0 and jnp.issubdtype(dtype, np.integer)))

    @abstractmethod
    def component(self, replica: Any) -> Any:
        """Returns one replica's component.

        Args:
          replica: The replica's number: an int, or a tracer in a program over the replicas.
        """


@final
@jax.tree_util.register_pytree_node_class
class PerReplica(DistributedValues):
    """A value with a separate component for each replica (`tf.distribute`'s `PerReplica`).

    The components are the rows of one array `(replicas, ...)`, whose row `i` is on
    replica `i`'s device. When their shapes differ (a partial batch, an empty
    replica), all rows are as large as the largest component, and each component
    is at the start of its row, with axes of length 1 added where it has fewer. The
    rest of a row is padding, which is never read.

    Args:
      stacked: The components as one array, `(replicas, ...)`; or a list of them, of any shapes.
      shapes: The shape of each component where they differ.

    Attributes:
      stacked: The components, `(replicas, ...)`, sharded along the first axis.
      shapes: The shape of each component; None when all are `stacked.shape[1:]`.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> dataset = dl.data.Dataset.range(3).batch(3)
      >>> batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
      >>> batch
      PerReplica:{
        0: Array([0, 1], dtype=int32),
        1: Array([2], dtype=int32)
      }
      >>> [component.tolist() for component in batch.values]
      [[0, 1], [2]]
      >>> rates = dl.PerReplica([0.1, 0.2])
      >>> int(strategy.run(lambda x, rate: (rate > 0.15) + x.sum(), args=(batch, rates)).values[1])
      3
    """

    __slots__ = ("__weakref__", "shapes", "stacked")

    __array__ = __float__ = __int__ = __complex__ = NotAnArray._refuse

    def __init__(self, stacked: Any, shapes: tuple[Shape, ...] | None = None) -> None:
        if type(stacked) in {list, tuple}:
            stacked, shapes = _joined(stacked)
        self.stacked = stacked
        self.shapes = shapes

    @property
    def values(self) -> tuple[Any, ...]:
        """The components in replica order, each on its replica's device."""
        in_flight.require_not_forked()
        self.require_axis()
        shapes = self.shapes
        try:
            rows = _rows(self.stacked)
        except RuntimeError as error:
            raise _deleted(self, self.stacked) from error
        return tuple(
            uncommitted(row[0] if shapes is None else row[_place(row, shapes[replica])])
            for replica, row in rows
        )

    def require_axis(self) -> None:
        """Checks that the components still have the axis along which they lie."""
        if getattr(self.stacked, "shape", None) == ():
            raise StructureError(
                f"{self.brief()} has lost the axis of the replicas, which jax.tree.map(lambda x: "
                "x[0], ...) and flax.jax_utils.unreplicate take off. Read the first replica's with "
                "strategy.experimental_local_results(value)[0]."
            )

    def component_type(self) -> tuple[Any, int]:
        """Returns the dtype of each component, None where it has none, and its rank."""
        shape = getattr(self.stacked, "shape", ())
        return getattr(self.stacked, "dtype", None), len(shape) - 1

    def component(self, replica: Any) -> Any:
        """Returns one replica's component; a program that uses it holds the numbers of all.

        Args:
          replica: The replica's number.

        Raises:
          StructureError: A program over the replicas uses it, and the shapes differ.
          ValueError: This process has no such replica.
        """
        if not isinstance(replica, jax.core.Tracer):
            return of_replica(self.values, replica, self.stacked)
        if self.shapes is not None:
            raise StructureError(
                f"{self.brief()} has components of different shapes, and a replica function uses "
                "it without receiving it. Pass it as an argument of run."
            )
        traced = isinstance(self.stacked, jax.core.Tracer)
        return jnp.asarray(self.stacked if traced else np.asarray(self.stacked))[replica]

    def tree_flatten(self) -> tuple[tuple[Any], tuple[Shape, ...] | None]:
        """Returns the array as the child; the shapes are part of the structure."""
        return (self.stacked,), self.shapes

    @classmethod
    def tree_unflatten(cls, shapes: tuple[Shape, ...] | None, children: tuple[Any]) -> PerReplica:
        """Returns the value with another array and the same shapes."""
        value = object.__new__(cls)  # JAX passes on what a user's function returns, array or not
        value.stacked, value.shapes = children[0], shapes
        return value

    def _repr_html_(self) -> str:
        """Returns HTML for notebooks: the device of each component, its shape and first numbers."""
        from distlab.values.reprs import per_replica_html

        return per_replica_html(self)

    def __repr__(self) -> str:
        """Shows the numbers of each component, or the first ones of a large one."""
        stacked = self.stacked
        if not _is_concrete(stacked) or not stacked.shape:
            return self.brief()
        shapes = replica_shapes(self)
        try:
            rows = _rows(stacked)
            components = ((n, row, _place(row, shapes[n])) for n, row in rows)
            return components_text("PerReplica", components, len(rows))
        except RuntimeError:  # deleted, or what computes it failed
            return f"{self.brief()[:-1]}, {'deleted' if stacked.is_deleted() else 'failed'})"

    def brief(self) -> str:
        """Returns dtype and shapes without numbers, for messages."""
        dtype = getattr(self.stacked, "dtype", "?")
        shape = tuple(getattr(self.stacked, "shape", ()))
        if self.shapes is None:
            return f"PerReplica({shape[0] if shape else '?'} x {dtype}{list(shape[1:])})"
        return f"PerReplica({dtype}, {', '.join(str(list(s)) for s in self.shapes)})"


@final
@jax.tree_util.register_pytree_node_class
class Mirrored(DistributedValues):
    """A value with an equal copy on every replica (`tf.distribute`'s `Mirrored`).

    `float(value)`, `numpy.asarray(value)` and a format such as `f"{value:.3f}"` read the copy.

    A replica function returns one to declare that all replicas hold the same, such as what came
    of an all-reduce. `run` then returns one array instead of a component for each replica.
    Compiled, that must follow from the function: a result that depends on anything that differs
    between replicas, without an all-reduce between, is a `StructureError`. Eagerly, the numbers
    are compared.

    Attributes:
      array: The value, replicated over the replicas' devices; in a replica function, its array.

    Example:
      >>> import jax
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> rate = dl.Mirrored(jax.device_put(0.5, strategy.mesh.whole))
      >>> rate
      Mirrored:{
        0: Array(0.5, dtype=float32),
        1: Array(0.5, dtype=float32)
      }
      >>> [float(copy) for copy in rate.values]
      [0.5, 0.5]
      >>> def step(weight, x):
      ...     gradient = dl.get_replica_context().all_reduce("SUM", x.sum())
      ...     return dl.Mirrored(weight - 0.1 * gradient)
      >>> dataset = dl.data.Dataset.range(4).batch(4)
      >>> for x in strategy.experimental_distribute_dataset(dataset):
      ...     weight = strategy.run(step, args=(rate, x))
      >>> weight.brief()
      'Mirrored(float32[])'
    """

    __slots__ = ("__weakref__", "array")

    _what = "lies on the devices of all replicas"
    _reading = (
        "or read it with float(value) or numpy.asarray(value), a nest of them with "
        "strategy.experimental_local_results(nest)[0]"
    )

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the copy as an array of NumPy."""
        in_flight.require_not_forked()
        try:
            return np.array(self.array, dtype=dtype, copy=copy)
        except RuntimeError as error:
            raise _deleted(self, self.array) from error

    def __float__(self) -> float:
        return float(self.__array__())

    def __int__(self) -> int:
        return int(self.__array__())

    def __complex__(self) -> complex:
        return complex(self.__array__())

    def __bool__(self) -> bool:
        """Returns the copy's truth where it is a flag or a count; else true, as in TensorFlow."""
        return bool(self.__array__()) if self.is_flag() else True

    def __format__(self, spec: str) -> str:
        return format(self.__array__()[()], spec) if spec else str(self)

    @property
    def values(self) -> tuple[Any, ...]:
        """The copies in replica order, each on its replica's device."""
        in_flight.require_not_forked()
        try:
            copies = pieces(self.array)
        except RuntimeError as error:
            raise _deleted(self, self.array) from error
        return tuple(uncommitted(copy) for _, copy in copies)

    def component_type(self) -> tuple[Any, int]:
        """Returns the dtype of each copy, None where it has none, and its rank."""
        return getattr(self.array, "dtype", None), len(getattr(self.array, "shape", ()))

    def component(self, replica: Any) -> Any:
        """Returns one replica's copy.

        Args:
          replica: The replica's number.

        Raises:
          ValueError: This process has no such replica.
        """
        if not isinstance(replica, jax.core.Tracer):
            return of_replica(self.values, replica, self.array)
        traced = isinstance(self.array, jax.core.Tracer)
        return jnp.asarray(self.array if traced else np.asarray(self.array))

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """Returns the array as the child."""
        return (self.array,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> Mirrored:
        """Returns the value with another array."""
        return cls(children[0])

    def _repr_html_(self) -> str:
        """Returns HTML for notebooks: the device of each copy and its first numbers."""
        from distlab.values.reprs import mirrored_html

        return mirrored_html(self)

    def __repr__(self) -> str:
        """Shows the numbers of each copy, or the first ones of a large one."""
        array = self.array
        if not _is_concrete(array):
            return self.brief()
        place = tuple(map(slice, array.shape))
        try:
            copies = [(n, copy, place) for n, copy in pieces(array)]
            return components_text("Mirrored", copies, len(copies))
        except RuntimeError:
            return f"{self.brief()[:-1]}, {'deleted' if array.is_deleted() else 'failed'})"

    def brief(self) -> str:
        """Returns dtype and shapes without numbers, for messages."""
        array = self.array
        return f"Mirrored({getattr(array, 'dtype', '?')}{list(getattr(array, 'shape', ()))})"


def _joined(components: Sequence[Any]) -> tuple[jax.Array, tuple[Shape, ...] | None]:
    """Returns components as the rows of one array, and their shapes where they differ."""
    rows = [jnp.asarray(component) for component in components]
    shapes = tuple(row.shape for row in rows)
    stacked = jnp.stack([padded(row, common_shape(shapes)) for row in rows])
    return stacked, None if len(set(shapes)) == 1 else shapes


def stack(components: Sequence[Any], mesh: ReplicaMesh) -> PerReplica:
    """Places arrays on the replicas' devices as the components of a `PerReplica`."""
    for component in components:
        require_kept(component, "A component of a per-replica value")
    with placing():
        arrays = [jnp.asarray(component) for component in components]
    (shapes,) = shapes_of_all([arrays], mesh)
    _require_one_dtype([(str(a.dtype), a.shape) for a in arrays])
    value = stack_to(arrays, shapes, mesh)
    # The components of other processes are not known here.
    if len(arrays) == mesh.replicas and all(one is components[0] for one in components):
        remember_equal_rows(value.stacked)
    return value


def shapes_of_all(columns: Sequence[Sequence[Any]], mesh: ReplicaMesh) -> list[tuple[Shape, ...]]:
    """Returns the components' shapes on all replicas; all workers call it, and exchange them."""
    own = [[[str(a.dtype), list(a.shape)] for a in column] for column in columns]
    processes = group.current()
    if not mesh.shared or processes is None:
        return [tuple(tuple(shape) for _, shape in column) for column in own]
    received = [json.loads(text) for text in processes.exchange("shapes", json.dumps(own))]
    found = []
    for parts in zip(*received, strict=True):
        kinds = [(dtype, shape) for part in parts for dtype, shape in part]
        _require_one_dtype(kinds)
        found.append(tuple(tuple(shape) for _, shape in kinds))
    return found


def _require_one_dtype(kinds: Sequence[tuple[str, Sequence[int]]]) -> None:
    if len({dtype for dtype, _ in kinds}) > 1:
        raise StructureError(
            "The components of a per-replica value must have one dtype, got "
            f"{[f'{dtype}{list(shape)}' for dtype, shape in kinds]}. Convert them with "
            "array.astype."
        )


def stack_to(arrays: Sequence[Any], shapes: tuple[Shape, ...], mesh: ReplicaMesh) -> PerReplica:
    """Places arrays on the local replicas' devices, where the shapes of all are known."""
    largest = common_shape(shapes)
    stacked = mesh.joined([padded(array, largest)[None] for array in arrays], mesh.split)
    return PerReplica(stacked, None if len(set(shapes)) == 1 else shapes)


def rebuilt(value: PerReplica | Mirrored, components: Sequence[Any]) -> PerReplica | Mirrored:
    """Returns a distributed value of the same class and place with other components."""
    array = value.stacked if isinstance(value, PerReplica) else value.array
    sharding = getattr(array, "sharding", None)
    if not isinstance(sharding, NamedSharding):  # being traced, or on the host
        return PerReplica(jnp.stack([jnp.asarray(component) for component in components]))
    mesh = replica_mesh(tuple(sharding.mesh.devices.flat), devices_each(sharding.mesh))
    if isinstance(value, PerReplica):
        return stack(components, mesh)
    return Mirrored(mesh.joined([jnp.asarray(component) for component in components], mesh.whole))


def replica_shapes(value: PerReplica) -> tuple[Shape, ...]:
    """Returns each component's shape."""
    if value.shapes is not None:
        return value.shapes
    replicas, *shape = value.stacked.shape
    return (tuple(shape),) * replicas


def _deleted(value: PerReplica | Mirrored, array: Any) -> DonatedError:
    """Returns the error for a value whose array has no memory."""
    return DonatedError(
        f"The {type(value).__name__} was deleted, or donated to an earlier call, so it can't be "
        f"read: {shown(array)}. Use the result of that call, or leave donate_argnums out of it."
    )


def of_replica(components: tuple[Any, ...], replica: int, array: Any) -> Any:
    """Returns the component of a replica among those of this process."""
    sharding = getattr(array, "sharding", None)
    if isinstance(sharding, NamedSharding) and not isinstance(array, jax.core.Tracer):
        return components[local_positions(sharding.mesh).index(replica)]
    # Objects: of several workers, those of this one.
    return components[replica % max(1, len(components))]


def _is_concrete(array: Any) -> bool:
    return isinstance(array, jax.Array | np.ndarray) and not isinstance(array, jax.core.Tracer)


def _place(row: Any, shape: Shape) -> tuple[Any, ...]:
    return (0, *place_of(shape, row.ndim - 1))


def _rows(stacked: Any) -> list[tuple[int, Any]]:
    """Returns pairs of a replica and its row `(1, ...)`, each on its own device."""
    rows = pieces(stacked)
    if rows[0][1].shape[0] == 1:
        return rows
    return [(replica, stacked[replica : replica + 1]) for replica in range(stacked.shape[0])]
