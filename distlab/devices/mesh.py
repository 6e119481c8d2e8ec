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


@final
class ReplicaMesh:
    """One device for each replica.

    Attributes:
      devices: the devices in replica order.
      names: their short names.
      size: number of replicas.
      mesh: the JAX mesh with the single axis `"replica"`.
      split: sharding of an array `(replicas, ...)`, one row on each device.
      whole: sharding of an array that each device holds a whole copy of.
      first: sharding of an array on the first device alone.
    """

    def __init__(self, devices: tuple[jax.Device, ...]) -> None:
        self.devices = devices
        self.names = tuple(selection.name(device) for device in devices)
        self.size = len(devices)
        self.mesh = Mesh(np.array(devices), (AXIS,))
        self.split = NamedSharding(self.mesh, PartitionSpec(AXIS))
        self.whole = NamedSharding(self.mesh, PartitionSpec())
        self.first = SingleDeviceSharding(devices[0])


@cache
def replica_mesh(devices: tuple[jax.Device, ...]) -> ReplicaMesh:
    """Returns the mesh of these devices, one object for each list of devices."""
    return ReplicaMesh(devices)
