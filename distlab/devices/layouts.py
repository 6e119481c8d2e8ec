"""Layouts of values on the replicas' devices: one array, and its copies.

A layout has a name, divides its array for a program over the mesh, and locates the
copies. Code above calls the layout and never compares names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from distlab.devices.combining import whole_of
from distlab.devices.jax_internals import uncommitted
from distlab.devices.mesh import AXIS, MODEL, PART, ReplicaMesh
from distlab.devices.pieces import first_piece, held, moved, pieces

LayoutName: TypeAlias = Literal["replicated", "per_replica", "single", "divided"]
"""Equal copies, one on each device; a separate value on each device; one copy on one device;
parts of one value, or of each replica's."""


class NewVariable(NamedTuple):
    """A variable whose layout is to be chosen; `layout` is what its maker asked for."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    layout: Any = None


class Partition(NamedTuple):
    """Division of an array into the replicas' blocks, for a program; of rows, a block has one.

    Blocks along an `axis` are parts of one value, which is read whole; `along` names the mesh axis.
    """

    spec: PartitionSpec
    of_rows: bool = False
    axis: int | None = None
    along: str = AXIS

    def local(self, block: Any) -> Any:
        """Returns the value that a replica reads from its block."""
        if self.axis is not None:
            return joined(block, self.axis, self.along)
        return block[0] if self.of_rows else block

    def block(self, local: Any) -> Any:
        """Returns the block that stores a replica's value."""
        if self.axis is not None:
            return own_part(local, self.axis, self.along)
        return jnp.expand_dims(local, 0) if self.of_rows else local  # constants have no index


def joined(part: Any, axis: int, along: str = AXIS) -> Any:
    """Returns a value from its parts along a mesh axis, in a program."""
    return jax.lax.all_gather(part, along, axis=axis, tiled=True)


def own_part(value: Any, axis: int, along: str = AXIS) -> Any:
    """Returns a device's part of a value along a mesh axis, in a program."""
    size = value.shape[axis] // jax.lax.axis_size(along)
    start = jax.lax.axis_index(along) * size
    return jax.lax.dynamic_slice_in_dim(value, start, size, axis)


ROWS: Final = Partition(PartitionSpec(AXIS), of_rows=True)
"""Row `i` of `(replicas, ...)` for replica `i`."""

PARTS: Final = Partition(PartitionSpec(AXIS))
"""One of the equal parts along the first axis for each replica."""

WHOLE: Final = Partition(PartitionSpec())
"""The whole array for each replica."""


class Layout(ABC):
    """The devices of a value's copies, and how a program over the mesh divides its array.

    `copies_differ` where each replica may hold a value of its own; `server` is the number of the
    parameter server that holds the one copy; `spec` names the mesh axes that divide the value;
    what `first` returns shares the memory of the array's `first_pieces`.
    """

    name: LayoutName
    spec: PartitionSpec = PartitionSpec()
    first_pieces = 1
    partition: Partition = WHOLE
    copies_differ = False
    one_copy = False
    server: int | None = None

    @abstractmethod
    def place(self, value: jax.Array) -> jax.Array:
        """Returns the array whose copies all equal `value`."""

    @abstractmethod
    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns the copies in this process by replica, each on its own device."""

    @abstractmethod
    def first(self, array: jax.Array) -> jax.Array:
        """Returns the first copy in this process."""

    def copy(self, array: jax.Array, replica: int) -> jax.Array:
        """Returns a replica's copy, where it has none in this process the first."""
        copies = self.copies(array)
        return copies[replica] if replica in copies else self.first(array)

    @abstractmethod
    def with_copy(self, array: jax.Array, replica: int, value: jax.Array) -> jax.Array:
        """Returns the array with one copy replaced."""

    @abstractmethod
    def adopt(self, array: jax.Array) -> jax.Array:
        """Returns the array for the output of a program over the mesh."""

    @abstractmethod
    def over(self, array: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the array as an argument of a program over `mesh`."""

    @abstractmethod
    def is_over(self, mesh: ReplicaMesh) -> bool:
        """Returns whether a program over `mesh` takes and returns the array itself."""

    @property
    @abstractmethod
    def replicas(self) -> tuple[int, ...]:
        """The replicas in this process that have a copy."""

    def pinned(self, array: jax.Array) -> jax.Array:
        """Returns an array that was computed from one of this layout, where it belongs."""
        return array

    @abstractmethod
    def beside(self, value: jax.Array) -> jax.Array:
        """Returns a value of another shape where it can be combined with an array."""

    @property
    def along_all_axes(self) -> Partition:
        """The partition in a program that divides arrays along the model axis by itself."""
        return self.partition

    def part_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of what each device holds of a value."""
        return shape

    def axes(self, rank: int) -> list[list[str]]:
        """Returns the mesh axes that divide each dimension; an empty list for whole copies."""
        missing = [None] * (rank - len(self.spec))
        return [[] if one is None else [one] for one in (*self.spec, *missing)] if self.spec else []


class _OnMesh(Layout):
    """A layout with a value for each replica of a mesh, on all of its devices."""

    def __init__(self, mesh: ReplicaMesh, spec: PartitionSpec | None = None) -> None:
        self._mesh = mesh
        self.sharding = NamedSharding(mesh.mesh, self.partition.spec if spec is None else spec)

    def adopt(self, array: jax.Array) -> jax.Array:
        """Returns the array itself, over the mesh where JAX, once interrupted, lost that."""
        if isinstance(array.sharding, NamedSharding):
            return array
        return jax.device_put(array, self.sharding)

    def over(self, array: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the array itself on its own mesh; elsewhere, copies of its first copy."""
        return array if mesh is self._mesh else mesh.put_whole(self.first(array))

    def is_over(self, mesh: ReplicaMesh) -> bool:
        """Returns whether that is the layout's own mesh."""
        return mesh is self._mesh

    def part_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of each device's part, or of the whole."""
        return self.sharding.shard_shape(shape) if self.spec else shape

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas of this process."""
        return self._mesh.local_replicas

    def beside(self, value: jax.Array) -> jax.Array:
        """Copies a value to every device."""
        return self._mesh.put_whole(value)

    def with_copy(self, array: jax.Array, replica: int, value: jax.Array) -> jax.Array:
        """Replaces one replica's value, after which the replicas' may differ."""
        own = jax.device_put(self._block(value, replica), self._of(replica))
        parts = held(array)
        parts[self._place(replica)] = held(own)
        return jax.make_array_from_single_device_arrays(array.shape, array.sharding, parts)

    def _block(self, value: jax.Array, replica: int) -> jax.Array:
        """Returns what stores the value of a replica."""
        del replica
        block: jax.Array = self.partition.block(value)
        return block

    def _of(self, replica: int) -> NamedSharding:
        """Returns the sharding of an array that has one replica's value alone."""
        return NamedSharding(self._mesh.of([replica]), self.sharding.spec)

    def _place(self, replica: int) -> slice:
        """Returns the place of a replica's pieces among those of this process."""
        first = self._mesh.local_replicas.index(replica) * self._mesh.model
        return slice(first, first + self._mesh.model)


@final
class Replicated(_OnMesh):
    """Equal copies, one on each device."""

    name: LayoutName = "replicated"

    def place(self, value: jax.Array) -> jax.Array:
        """Copies the value to every device."""
        return self._mesh.put_whole(value)

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns each replica's copy."""
        return {replica: uncommitted(piece) for replica, piece in pieces(array)}

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the first device's copy."""
        return uncommitted(first_piece(array))


@final
class OnModelAxis(_OnMesh):
    """Equal values, one for each replica, of which each of its devices has a part."""

    name: LayoutName = "divided"

    def __init__(self, mesh: ReplicaMesh, spec: PartitionSpec) -> None:
        super().__init__(mesh, spec)
        self.spec, self.first_pieces = spec, mesh.model

    @property
    def along_all_axes(self) -> Partition:
        """The parts of each replica's devices, joined along the model axis."""
        return Partition(self.spec, axis=len(self.spec) - 1, along=MODEL)

    def place(self, value: jax.Array) -> jax.Array:
        """Divides the value over the devices of every replica."""
        return jax.device_put(value, self.sharding)

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns each replica's value, whole on its first device."""
        return {replica: self.copy(array, replica) for replica in self.replicas}

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the first replica's value in its parts: it may not fit on one device."""
        first = self.replicas[0]
        sharding = NamedSharding(self._mesh.of([first], PART), self.spec)
        pieces = held(array)[self._place(first)]
        return jax.make_array_from_single_device_arrays(array.shape, sharding, pieces)

    def copy(self, array: jax.Array, replica: int) -> jax.Array:
        """Returns a replica's value, whole on its first device."""
        pieces = held(array)[self._place(replica)]
        own = jax.make_array_from_single_device_arrays(array.shape, self._of(replica), pieces)
        return uncommitted(moved(own, self._mesh.devices[replica]))


@final
class Divided(_OnMesh):
    """One value in equal parts along an axis, one for each replica."""

    name: LayoutName = "divided"

    def __init__(self, mesh: ReplicaMesh, axis: int) -> None:
        self.spec = PartitionSpec(*[None] * axis, AXIS)
        self.partition = Partition(self.spec, axis=axis)
        super().__init__(mesh, self.spec)
        self._axis = axis

    def place(self, value: jax.Array) -> jax.Array:
        """Divides the value over the replicas; of several processes, each places its own parts."""
        if not self._mesh.shared or not value.is_fully_addressable:
            return jax.device_put(value, self.sharding)
        return jax.make_array_from_callback(value.shape, self.sharding, value.__getitem__)

    def pinned(self, array: jax.Array) -> jax.Array:
        """Returns the array in parts, wherever XLA left it."""
        return jax.device_put(array, self.sharding)

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns the whole value on each replica's device; of all processes, all call it."""
        return {replica: uncommitted(piece) for replica, piece in pieces(whole_of(array))}

    def copy(self, array: jax.Array, replica: int) -> jax.Array:
        """Returns the whole value on a replica's device; of several processes, all call it."""
        if self._mesh.shared:
            return self.copies(array)[replica]
        return uncommitted(moved(array, self._mesh.devices[replica]))

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the value in its parts: it may not fit on one device.

        Of several processes, which all call it, each receives it whole.
        """
        if self._mesh.shared:
            return uncommitted(first_piece(whole_of(array)))
        mesh = self._mesh.of(range(self._mesh.replicas), PART)
        sharding = NamedSharding(mesh, PartitionSpec(*[None] * self._axis, PART))
        return jax.make_array_from_single_device_arrays(array.shape, sharding, held(array))

    def _block(self, value: jax.Array, replica: int) -> jax.Array:
        """Returns a replica's part of its value."""
        size = value.shape[self._axis] // self._mesh.replicas
        return jax.lax.slice_in_dim(value, replica * size, (replica + 1) * size, axis=self._axis)


@final
class OnePerReplica(_OnMesh):
    """A separate value for each replica: row `i` of the array is replica `i`'s."""

    name: LayoutName = "per_replica"
    partition = ROWS
    copies_differ = True

    def place(self, value: jax.Array) -> jax.Array:
        """Copies the value to every replica's row."""
        return self._mesh.put_rows(value)

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns each replica's value."""
        return {replica: uncommitted(row[0]) for replica, row in pieces(array)}

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the first replica's value."""
        return uncommitted(first_piece(array)[0])


@final
class OnOneDevice(Layout):
    """One copy, which all replicas share; without a `home` it stays where JAX puts it."""

    name: LayoutName = "single"
    one_copy = True

    def __init__(self, home: jax.Device | None = None, server: int | None = None) -> None:
        self._home = home
        self.server = server

    def place(self, value: jax.Array) -> jax.Array:
        """Copies the value to the device."""
        return value if self._home is None else jax.device_put(value, self._home)

    @property
    def replicas(self) -> tuple[int, ...]:
        """Replica 0, for all."""
        return (0,)

    def beside(self, value: jax.Array) -> jax.Array:
        """Copies the value to the device."""
        return self.place(value)

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns the copy as that of replica 0."""
        return {0: self.first(array)}

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the copy."""
        return uncommitted(array)

    def with_copy(self, array: jax.Array, replica: int, value: jax.Array) -> jax.Array:
        """Replaces the copy, whichever replica assigns it."""
        del array, replica
        return self.place(value)

    def adopt(self, array: jax.Array) -> jax.Array:
        """Copies one of the program's equal outputs to the device."""
        return self.place(first_piece(array))

    def over(self, array: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Copies the value to every device of the mesh."""
        return mesh.put_whole(self.first(array))

    def is_over(self, mesh: ReplicaMesh) -> bool:
        """Returns False: the one copy lies outside of any program."""
        del mesh
        return False
