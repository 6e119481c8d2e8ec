"""The grid of devices and the assignment of replicas to them (`tf.tpu.experimental`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import jax
import numpy as np

from distlab.devices import selection
from distlab.devices.selection import DeviceLike
from distlab.errors import DeviceError, OptionError
from distlab.text.counts import is_count
from distlab.text.shown import shown

_RANK = 4
"""A core's coordinates: x, y, z of the chip, and the core's number on it."""


@final
class Topology:
    """The devices as a grid of chips with cores.

    TPU devices report their coordinates. Other devices form a row, so that
    programs for TPUs run on any platform.

    Args:
      devices: Names or `jax.Device` objects; by default all local devices.

    Attributes:
      devices: The devices.
      device_coordinates: The coordinates of each device, `(devices, 4)`, int64.
      mesh_shape: The extent of the grid in each of the four dimensions.

    Raises:
      DeviceError: A device does not exist or is named twice.

    Example:
      >>> import distlab as dl
      >>> topology = dl.tpu.Topology(["CPU:0", "CPU:1", "CPU:2"])
      >>> topology.mesh_shape
      (3, 1, 1, 1)
      >>> topology.device_at([2, 0, 0, 0]).id
      2
    """

    def __init__(self, devices: Sequence[DeviceLike] | None = None) -> None:
        chosen = selection.available() if devices is None else devices
        self.devices = selection.find(list(chosen))
        self.device_coordinates = np.array(
            [_coordinates(device, number) for number, device in enumerate(self.devices)]
        )
        self.mesh_shape = tuple(int(n) for n in self.device_coordinates.max(axis=0) + 1)

    def device_at(self, coordinates: Sequence[int]) -> jax.Device:
        """Returns the device at the four coordinates.

        Raises:
          DeviceError: No device has these coordinates.
        """
        for device, place in zip(self.devices, self.device_coordinates, strict=True):
            if tuple(place) == tuple(coordinates):
                return device
        raise DeviceError(
            f"No device has the coordinates {tuple(coordinates)}; the grid is {self.mesh_shape}. "
            "Use one of device_coordinates."
        )


@final
class DeviceAssignment:
    """The device that runs each replica.

    Args:
      topology: The devices.
      core_assignment: The coordinates for each replica, `(replicas, 1, 4)`.

    Attributes:
      topology: The devices.
      core_assignment: The coordinates for each replica.

    Raises:
      OptionError: The coordinates have another shape.
      DeviceError: No device has these coordinates, or two replicas share one.

    Example:
      >>> import distlab as dl
      >>> assignment = dl.tpu.DeviceAssignment.build(dl.tpu.Topology(), num_replicas=4)
      >>> assignment.coordinates(replica=3)
      (3, 0, 0, 0)
      >>> strategy = dl.TPUStrategy(experimental_device_assignment=assignment)
      >>> strategy.num_replicas_in_sync
      4
    """

    def __init__(self, topology: Topology, core_assignment: np.ndarray) -> None:
        places = np.asarray(core_assignment)
        if places.ndim != 3 or places.shape[1:] != (1, _RANK) or not len(places):
            raise OptionError(
                "core_assignment must have the shape [replicas, 1, 4] (one core for each replica, "
                f"at x, y, z and its number on the chip), got {list(places.shape)}. "
                "Make one with DeviceAssignment.build."
            )
        self.topology = topology
        self.core_assignment = places
        self.devices = selection.find([topology.device_at(place[0]) for place in places])

    @classmethod
    def build(cls, topology: Topology, num_replicas: int = 1) -> DeviceAssignment:
        """Assigns the first devices of a topology, in order.

        Args:
          topology: The devices.
          num_replicas: The number of replicas, each on its own device.

        Returns:
          The assignment.

        Raises:
          DeviceError: The topology has fewer devices than replicas.

        Example:
          >>> import distlab as dl
          >>> topology = dl.tpu.Topology()
          >>> dl.tpu.DeviceAssignment.build(topology, num_replicas=2).tpu_device(replica=1)
          'CPU:1'
        """
        if not is_count(num_replicas) or not 1 <= num_replicas <= len(topology.devices):
            raise DeviceError(
                f"num_replicas must be between 1 and the number of devices, "
                f"{len(topology.devices)}, got {shown(num_replicas)}. Use one device for each."
            )
        return cls(topology, topology.device_coordinates[:num_replicas, None, :])

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self.devices)

    @property
    def num_cores_per_replica(self) -> int:
        """The number of cores of each replica: 1."""
        return 1

    def coordinates(self, replica: int, logical_core: int = 0) -> tuple[int, ...]:
        """Returns the coordinates of a replica's core."""
        return tuple(int(n) for n in self.core_assignment[replica, logical_core])

    def tpu_device(self, replica: int = 0, logical_core: int = 0) -> str:
        """Returns the name of a replica's device, such as `"TPU:0"`."""
        return selection.name(self.topology.device_at(self.coordinates(replica, logical_core)))


def _coordinates(device: jax.Device, number: int) -> tuple[int, ...]:
    place = getattr(device, "coords", None)
    if place is None:
        return (number, 0, 0, 0)
    x, y, z = (*place, 0, 0)[:3]
    return (int(x), int(y), int(z), int(getattr(device, "core_on_chip", 0)))
