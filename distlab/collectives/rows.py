"""The components of all replicas, brought to one device."""

from __future__ import annotations

from typing import Any

import jax

from distlab.devices.combining import all_rows
from distlab.devices.mesh import ReplicaMesh
from distlab.errors import ContextError
from distlab.values.distributed import DistributedValues, PerReplica, replica_shapes, stack
from distlab.values.padding import place_of
from distlab.variables.variable import Variable


def copies_of(variable: Variable, mesh: ReplicaMesh) -> PerReplica:
    """Returns the copies of a variable as the components of a per-replica value."""
    if not variable.storage.layout.is_over(mesh):
        raise ContextError(
            "A variable has copies for the replicas of its own strategy, got the Variable "
            f"{variable.name} of {variable.strategy!r}. Pass variable.value(), or use that one."
        )
    if variable.storage.layout.copies_differ:
        return PerReplica(variable.storage.alive())
    copies = variable.storage.copies()
    return stack([copies[replica] for replica in sorted(copies)], mesh)


def on_first_device(value: DistributedValues, mesh: ReplicaMesh) -> list[Any]:
    """Returns the components of all replicas, in replica order, on the first local device."""
    if not mesh.shared or not isinstance(value, PerReplica):
        return list(jax.device_put(value.values, mesh.local_devices[0]))
    (rows,) = all_rows([value.stacked], mesh)
    shapes = replica_shapes(value)
    rank = rows.ndim - 1
    return [rows[(n, *place_of(shape, rank))] for n, shape in enumerate(shapes)]
