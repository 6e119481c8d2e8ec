"""The storage of a variable: its array, in the variable's layout."""

from __future__ import annotations

from typing import final

import jax

from distlab.devices.layouts import Layout
from distlab.devices.mesh import ReplicaMesh


@final
class Storage:
    """The array of a variable.

    Args:
      value: The initial value of each copy.
      layout: Where the copies are.

    Attributes:
      layout: Where the copies are.
      array: The value; `(replicas, ...)` when the copies may differ.
    """

    __slots__ = ("array", "layout")

    def __init__(self, value: jax.Array, layout: Layout) -> None:
        self.layout = layout
        self.array = layout.place(value)

    def copies(self) -> dict[int, jax.Array]:
        """Returns the copies in this process by replica, each on its own device."""
        return self.layout.copies(self.array)

    def first(self) -> jax.Array:
        """Returns the first copy in this process."""
        return self.layout.first(self.array)

    def set_copy(self, replica: int, value: jax.Array) -> None:
        """Replaces one copy and keeps the others."""
        self.array = self.layout.with_copy(self.array, replica, value)

    def adopt(self, array: jax.Array) -> None:
        """Stores the output of a program over the mesh."""
        self.array = self.layout.adopt(array)

    def over(self, mesh: ReplicaMesh) -> jax.Array:
        """Returns the value as an argument of a program over `mesh`."""
        return self.layout.over(self.array, mesh)
