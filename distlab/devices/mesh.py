"""The replicas as a one-dimensional device mesh, and the shardings on it."""

from __future__ import annotations

from functools import cache
from typing import Final, final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from distlab.devices import selection

AXIS: Final = "replica"
"""Name of the mesh axis; a replica is an index along it."""

SAME_ON_ALL: Final = "distlab_same_on_all"
"""Name of a traced function whose results are the same on all replicas, whatever it computes."""


@final
class ReplicaMesh:
    """One device for each replica.

    Attributes:
      devices: The devices of all replicas, in replica order.
      names: The short names of the devices, such as `"CPU:0"`.
      replicas: Number of replicas in all processes.
      local_replicas: Numbers of the replicas whose devices belong to this process.
      local_devices: The devices of the local replicas.
      mesh: The JAX mesh with the single axis `"replica"`.
      split: Sharding of an array `(replicas, ...)`, one row on each device.
      whole: Sharding of an array of which each device holds a full copy.
      first: Sharding of an array on the first local device only.
    """

    def __init__(self, devices: tuple[jax.Device, ...]) -> None:
        self.devices = devices
        self.names = tuple(selection.name(device) for device in devices)
        self.replicas = len(devices)
        self.mesh = Mesh(np.array(devices), (AXIS,))
        self.local_replicas = local_positions(self.mesh)
        self.local_devices = tuple(devices[replica] for replica in self.local_replicas)
        self.split = NamedSharding(self.mesh, PartitionSpec(AXIS))
        self.whole = NamedSharding(self.mesh, PartitionSpec())
        self.first = SingleDeviceSharding(self.local_devices[0])


@cache
def replica_mesh(devices: tuple[jax.Device, ...]) -> ReplicaMesh:
    """Returns the mesh of these devices; equal tuples share one object."""
    return ReplicaMesh(devices)


@cache
def local_positions(mesh: Mesh) -> tuple[int, ...]:
    """Returns the positions in a mesh of the devices that belong to this process."""
    here = jax.process_index()
    return tuple(n for n, device in enumerate(mesh.devices.flat) if device.process_index == here)
