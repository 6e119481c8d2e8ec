"""Where a variable's value lies: one global array, and its copies on devices."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import jax
import numpy as np

from distlab.devices.jax_internals import uncommitted
from distlab.devices.mesh import ReplicaMesh
from distlab.values.distributed import pieces

Layout: TypeAlias = Literal["replicated", "per_replica", "single"]
"""A copy on each device; a value of its own on each device; one copy on one device."""


@final
class Storage:
    """The array of a variable.

    Attributes:
      layout: how it lies on the devices.
      mesh: the replicas' devices; None for a variable of no strategy.
      home: the one device of a single copy; None when JAX may choose.
      array: the value: whole, or `(replicas, ...)` when per replica.
    """

    __slots__ = ("array", "home", "layout", "mesh")

    def __init__(
        self,
        value: jax.Array,
        layout: Layout,
        mesh: ReplicaMesh | None = None,
        home: jax.Device | None = None,
    ) -> None:
        self.layout: Layout = layout
        self.mesh = mesh
        self.home = home
        self.array = self.placed(value)

    def placed(self, value: jax.Array) -> jax.Array:
        """Returns a whole value as this storage lays it out, the same in each copy."""
        if self.layout == "single" or self.mesh is None:
            return value if self.home is None else jax.device_put(value, self.home)
        if self.layout == "replicated":
            return jax.device_put(value, self.mesh.whole)
        rows = np.broadcast_to(np.asarray(value)[None], (self.mesh.size, *value.shape))
        return jax.device_put(rows, self.mesh.split)

    def copies(self) -> list[jax.Array]:
        """Returns the copies in replica order, each where it lies."""
        if self.layout == "single":
            return [uncommitted(self.array)]
        rows = pieces(self.array)
        own = [row[0] for row in rows] if self.layout == "per_replica" else rows
        return [uncommitted(copy) for copy in own]

    def first(self) -> jax.Array:
        """Returns the first copy."""
        if self.layout == "per_replica":
            return self.copies()[0]
        first: jax.Array = uncommitted(
            self.array if self.layout == "single" else pieces(self.array)[0]
        )
        return first

    def set_copy(self, number: int, value: jax.Array) -> None:
        """Writes one copy and leaves the others alone."""
        if self.layout == "single" or self.mesh is None:
            self.array = self.placed(value)
            return
        rows = pieces(self.array)
        row = value[None] if self.layout == "per_replica" else value
        rows[number] = jax.device_put(row, self.mesh.devices[number])
        self.array = jax.make_array_from_single_device_arrays(
            self.array.shape, self.array.sharding, rows
        )

    def adopt(self, array: jax.Array) -> None:
        """Takes the array that a program over the mesh computed for it."""
        self.array = self.placed(pieces(array)[0]) if self.layout == "single" else array

    def over(self, mesh: ReplicaMesh) -> jax.Array:
        """Returns the value as an argument of a program over `mesh`."""
        if self.mesh is mesh and self.layout != "single":
            return self.array
        return jax.device_put(self.first(), mesh.whole)
