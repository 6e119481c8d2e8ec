"""The grid of devices and the assignment of replicas to them (`tf.tpu.experimental`)."""

from __future__ import annotations

import math
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
    """The devices that run each replica, which are its logical devices 0, 1, ...

    Args:
      topology: The devices.
      core_assignment: The coordinates of each replica's devices, `(replicas, cores, 4)`.

    Attributes:
      topology: The devices.
      core_assignment: The coordinates of each replica's devices.
      devices: The devices, those of the first replica first.

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
        if places.ndim != 3 or places.shape[2] != _RANK or not places.size:
            raise OptionError(
                "core_assignment must have the shape [replicas, cores, 4] (each core at x, y, z "
                f"and its number on the chip), got {list(places.shape)}. "
                "Make one with DeviceAssignment.build."
            )
        self.topology = topology
        self.core_assignment = places
        cores = places.reshape(-1, _RANK)
        self.devices = selection.find([topology.device_at(tuple(place)) for place in cores])

    @classmethod
    def build(
        cls,
        topology: Topology,
        num_replicas: int = 1,
        *,
        computation_shape: Sequence[int] | None = None,
        computation_stride: Sequence[int] | None = None,
    ) -> DeviceAssignment:
        """Assigns the first devices of a topology, in order; to each replica a block of the grid.

        Args:
          topology: The devices.
          num_replicas: The number of replicas.
          computation_shape: The extent of a replica's block in each of the four dimensions; by
            default one device. Where the grid is a row, blocks are as many neighbours.
          computation_stride: The distance of a block's devices in each dimension; by default 1.

        Returns:
          The assignment.

        Raises:
          OptionError: A shape has not four numbers of at least 1.
          DeviceError: The topology has not enough devices for the replicas.

        Example:
          >>> import distlab as dl
          >>> topology = dl.tpu.Topology()
          >>> dl.tpu.DeviceAssignment.build(topology, num_replicas=2).tpu_device(replica=1)
          'CPU:1'
          >>> pairs = dl.tpu.DeviceAssignment.build(
          ...     topology, num_replicas=4, computation_shape=[1, 1, 1, 2]
          ... )
          >>> pairs.tpu_device(replica=1, logical_core=1)
          'CPU:3'
        """
        shape = _extent("computation_shape", computation_shape)
        stride = _extent("computation_stride", computation_stride)
        mesh = np.array(topology.mesh_shape)
        if mesh[1:].max() == 1:
            shape, stride = (np.array([math.prod(one), 1, 1, 1]) for one in (shape, stride))
        counts = mesh // (shape * stride) * stride
        most = math.prod(counts)
        if not is_count(num_replicas) or not 1 <= num_replicas <= most:
            raise DeviceError(
                f"num_replicas must be between 1 and {most}, as {len(topology.devices)} devices "
                f"have so many blocks of {math.prod(shape)}, got {shown(num_replicas)}."
            )
        # The core's number counts fastest, then x, y and z.
        order = (2, 1, 0, 3)
        places = _positions(counts[list(order)])[:, np.argsort(order)]
        offsets = places // stride * shape * stride + places % stride
        cores = offsets[:num_replicas, None, :] + _positions(shape) * stride
        return cls(topology, cores)

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return len(self.core_assignment)

    @property
    def num_cores_per_replica(self) -> int:
        """The number of devices of each replica."""
        return int(self.core_assignment.shape[1])

    def coordinates(self, replica: int, logical_core: int = 0) -> tuple[int, ...]:
        """Returns the coordinates of a replica's core."""
        return tuple(int(n) for n in self.core_assignment[replica, logical_core])

    def tpu_device(self, replica: int = 0, logical_core: int = 0) -> str:
        """Returns the name of a replica's device, such as `"TPU:0"`."""
        return selection.name(self.topology.device_at(self.coordinates(replica, logical_core)))


def _extent(what: str, given: Sequence[int] | None) -> np.ndarray:
    """Returns a number for each dimension of the grid."""
    extent = np.ones(_RANK, np.int64) if given is None else np.asarray(given)
    if extent.shape != (_RANK,) or extent.dtype.kind not in "iu" or extent.min() < 1:
        raise OptionError(
            f"{what} must have a number for x, y, z and the core of a chip, each at least 1, got "
            f"{shown(given)}. [1, 1, 1, 2] stands for two cores of a chip."
        )
    return extent


def _positions(shape: np.ndarray) -> np.ndarray:
    """Returns the positions in a grid, the last dimension first, `(positions, 4)`."""
    return np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)


def _coordinates(device: jax.Device, number: int) -> tuple[int, ...]:
    place = getattr(device, "coords", None)
    if place is None:
        return (number, 0, 0, 0)
    x, y, z = (*place, 0, 0)[:3]
    return (int(x), int(y), int(z), int(getattr(device, "core_on_chip", 0)))
