"""Which devices stand where, and which replica gets which (`tf.tpu.experimental`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import jax
import numpy as np

from distlab.devices import selection
from distlab.devices.selection import DeviceLike
from distlab.errors import ArgumentTypeError, DeviceError, OptionError
from distlab.text.counts import is_count

_RANK = 4
"""A core stands at x, y, z and a number on its chip."""


@final
class Topology:
    """The devices as a grid of chips with cores.

    TPU devices tell where they stand. Other devices stand in a row, so that
    programs for TPUs run on any platform.

    Args:
      devices: names or `jax.Device` objects; by default all local ones.

    Attributes:
      devices: the devices.
      device_coordinates: where each stands: `(devices, 4)`, int64.
      mesh_shape: how many places there are in each of the four directions.

    Raises:
      DeviceError: a device does not exist or is named twice.
    """

    def __init__(self, devices: Sequence[DeviceLike] | None = None) -> None:
        chosen = selection.available() if devices is None else devices
        self.devices = selection.find(list(chosen))
        self.device_coordinates = np.array(
            [_coordinates(device, number) for number, device in enumerate(self.devices)]
        )
        self.mesh_shape = tuple(int(n) for n in self.device_coordinates.max(axis=0) + 1)

    def device_at(self, coordinates: Sequence[int]) -> jax.Device:
        """Returns the device that stands at four coordinates.

        Raises:
          DeviceError: none does.
        """
        for device, place in zip(self.devices, self.device_coordinates, strict=True):
            if tuple(place) == tuple(coordinates):
                return device
        raise DeviceError(
            f"No device stands at {tuple(coordinates)}; the grid is {self.mesh_shape}."
        )


@final
class DeviceAssignment:
    """Which device runs which replica.

    Args:
      topology: the devices.
      core_assignment: coordinates for each replica: `(replicas, 1, 4)`.

    Attributes:
      topology: the devices.
      core_assignment: coordinates for each replica.

    Raises:
      OptionError: the coordinates have another shape.
      DeviceError: no device stands there, or one is used twice.
    """

    def __init__(self, topology: Topology, core_assignment: np.ndarray) -> None:
        places = np.asarray(core_assignment)
        if places.ndim != 3 or places.shape[1:] != (1, _RANK) or not len(places):
            raise OptionError(
                "core_assignment must have the shape [replicas, 1, 4] (one core for each replica, "
                f"at x, y, z and its number on the chip), got {list(places.shape)}."
            )
        self.topology = topology
        self.core_assignment = places
        self.devices = selection.find([topology.device_at(place[0]) for place in places])

    @classmethod
    def build(cls, topology: Topology, num_replicas: int = 1) -> DeviceAssignment:
        """Assigns the first devices of a topology, in order.

        Args:
          topology: the devices.
          num_replicas: how many replicas, each on a device of its own.

        Raises:
          ArgumentTypeError: the topology is none.
          DeviceError: there are fewer devices.
        """
        if not isinstance(topology, Topology):
            raise ArgumentTypeError(
                f"topology must be a distlab.tpu.Topology, got {topology!r:.80}. Make one of the "
                "devices there are with Topology()."
            )
        if not is_count(num_replicas) or not 1 <= num_replicas <= len(topology.devices):
            raise DeviceError(
                f"num_replicas must be between 1 and the number of devices, "
                f"{len(topology.devices)}, got {num_replicas}."
            )
        return cls(topology, topology.device_coordinates[:num_replicas, None, :])

    @property
    def num_replicas(self) -> int:
        """How many replicas there are."""
        return len(self.devices)

    @property
    def num_cores_per_replica(self) -> int:
        """How many cores each replica has: 1."""
        return 1

    def coordinates(self, replica: int, logical_core: int = 0) -> tuple[int, ...]:
        """Returns where a replica's core stands."""
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
