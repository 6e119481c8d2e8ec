"""How a value lies on the replicas' devices: as one array, and as its copies.

A layout knows its name, how a program over the mesh divides its array, and where its
copies are. Code above asks the layout and never compares names.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, TypeAlias, final

import jax
import numpy as np
from jax.sharding import PartitionSpec

from distlab.devices.jax_internals import uncommitted
from distlab.devices.mesh import AXIS, ReplicaMesh
from distlab.devices.pieces import first_piece, pieces

LayoutName: TypeAlias = Literal["replicated", "per_replica", "single"]
"""A copy on each device; a value of its own on each device; one copy on one device."""


class Partition(Protocol):
    """How a program over the mesh divides a global array into the replicas' blocks."""

    spec: PartitionSpec

    def local(self, block: Any) -> Any:
        """Returns the value that a replica sees of its block."""

    def block(self, local: Any) -> Any:
        """Returns the block that a replica's value becomes."""


class _Rows:
    """Row `i` of `(replicas, ...)` belongs to replica `i`."""

    spec = PartitionSpec(AXIS)

    def local(self, block: Any) -> Any:
        return block[0]

    def block(self, local: Any) -> Any:
        return local[None]


class _Whole:
    """Every replica has the whole array."""

    spec = PartitionSpec()

    def local(self, block: Any) -> Any:
        return block

    def block(self, local: Any) -> Any:
        return local


ROWS: Final[Partition] = _Rows()
"""One row for each replica."""

WHOLE: Final[Partition] = _Whole()
"""The same for each replica."""


class Layout(Protocol):
    """Where the copies of one value lie.

    Attributes:
      name: The name that events and pages show.
      partition: How a program over the mesh divides the array.
      copies_differ: Whether each replica may hold a value of its own.
      one_copy: Whether all replicas share one copy.
    """

    name: LayoutName
    partition: Partition
    copies_differ: bool
    one_copy: bool

    def place(self, value: jax.Array) -> jax.Array:
        """Returns the array of a whole value, the same in each copy."""

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns the copies in this process by replica, each on its own device."""

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the first copy in this process."""

    def with_copy(self, array: jax.Array, replica: int, value: jax.Array) -> jax.Array:
        """Returns the array with one copy replaced."""

    def adopt(self, array: jax.Array) -> jax.Array:
        """Returns the array for what a program over the mesh computed."""

    def over(self, array: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the array as an argument of a program over `mesh`."""


@final
class Replicated:
    """A copy on each replica's device."""

    name: LayoutName = "replicated"
    partition = WHOLE
    copies_differ = False
    one_copy = False

    def __init__(self, mesh: ReplicaMesh) -> None:
        self._mesh = mesh

    def place(self, value: jax.Array) -> jax.Array:
        """Copies the value to every device."""
        return jax.device_put(value, self._mesh.whole)

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns each device's copy."""
        return {replica: uncommitted(piece) for replica, piece in pieces(array)}

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the first device's copy."""
        first: jax.Array = uncommitted(first_piece(array))
        return first

    def with_copy(self, array: jax.Array, replica: int, value: jax.Array) -> jax.Array:
        """Replaces one device's copy; the array then holds different ones."""
        return _with_piece(array, replica, jax.device_put(value, self._mesh.devices[replica]))

    def adopt(self, array: jax.Array) -> jax.Array:
        """Returns the array itself."""
        return array

    def over(self, array: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the array itself on its own mesh, else copies its first copy there."""
        return array if mesh is self._mesh else jax.device_put(self.first(array), mesh.whole)


@final
class OnePerReplica:
    """A value of its own on each replica's device: row `i` of the array is replica `i`'s."""

    name: LayoutName = "per_replica"
    partition = ROWS
    copies_differ = True
    one_copy = False

    def __init__(self, mesh: ReplicaMesh) -> None:
        self._mesh = mesh

    def place(self, value: jax.Array) -> jax.Array:
        """Gives every replica the value as its row."""
        rows = np.broadcast_to(np.asarray(value)[None], (self._mesh.replicas, *value.shape))
        return jax.device_put(rows, self._mesh.split)

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns each replica's value."""
        return {replica: uncommitted(row[0]) for replica, row in pieces(array)}

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the first replica's value."""
        first: jax.Array = uncommitted(first_piece(array)[0])
        return first

    def with_copy(self, array: jax.Array, replica: int, value: jax.Array) -> jax.Array:
        """Replaces one replica's row."""
        return _with_piece(array, replica, jax.device_put(value[None], self._mesh.devices[replica]))

    def adopt(self, array: jax.Array) -> jax.Array:
        """Returns the array itself."""
        return array

    def over(self, array: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Returns the array itself on its own mesh, else copies its first value there."""
        return array if mesh is self._mesh else jax.device_put(self.first(array), mesh.whole)


@final
class OnOneDevice:
    """One copy, which all replicas share.

    Args:
      home: The device of the copy; None leaves it where JAX puts it.
    """

    name: LayoutName = "single"
    partition = WHOLE
    copies_differ = False
    one_copy = True

    def __init__(self, home: jax.Device | None = None) -> None:
        self._home = home

    def place(self, value: jax.Array) -> jax.Array:
        """Copies the value to the one device."""
        return value if self._home is None else jax.device_put(value, self._home)

    def copies(self, array: jax.Array) -> dict[int, jax.Array]:
        """Returns the one copy."""
        return {0: self.first(array)}

    def first(self, array: jax.Array) -> jax.Array:
        """Returns the one copy."""
        first: jax.Array = uncommitted(array)
        return first

    def with_copy(self, array: jax.Array, replica: int, value: jax.Array) -> jax.Array:
        """Replaces the one copy."""
        del array, replica
        return self.place(value)

    def adopt(self, array: jax.Array) -> jax.Array:
        """Copies one of the mesh's equal copies to the one device."""
        return self.place(first_piece(array))

    def over(self, array: jax.Array, mesh: ReplicaMesh) -> jax.Array:
        """Copies the value to every device of the mesh."""
        return jax.device_put(self.first(array), mesh.whole)


def _with_piece(array: jax.Array, replica: int, piece: jax.Array) -> jax.Array:
    parts = dict(pieces(array))
    parts[replica] = piece
    return jax.make_array_from_single_device_arrays(
        array.shape, array.sharding, list(parts.values())
    )
