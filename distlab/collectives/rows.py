"""The components of all replicas, brought to one device."""

from __future__ import annotations

from typing import Any

import jax

from distlab.devices.combining import all_rows
from distlab.devices.mesh import ReplicaMesh
from distlab.values.distributed import DistributedValues, PerReplica, replica_shapes


def on_first_device(value: DistributedValues, mesh: ReplicaMesh) -> list[Any]:
    """Returns the components of all replicas, in replica order, on the first local device.

    Args:
      value: A value that is not being traced. Where other processes have replicas, all of them
        call this.
      mesh: The replicas' devices.
    """
    if not mesh.shared or not isinstance(value, PerReplica):
        return list(jax.device_put(value.values, mesh.local_devices[0]))
    (rows,) = all_rows([value.stacked], mesh)
    shapes = replica_shapes(value)
    return [rows[(replica, *map(slice, shape))] for replica, shape in enumerate(shapes)]
