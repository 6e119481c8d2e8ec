"""Synchronous training on the devices of one machine, each with a copy of every variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from distlab.collectives.cross_device_ops import CrossDeviceOps
from distlab.devices import selection
from distlab.devices.selection import DeviceLike
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy


class MirroredStrategy(Strategy):
    """One replica on each device, in sync (`tf.distribute.MirroredStrategy`).

    Variables made in its scope are mirrored: every device holds a copy, and
    the copies stay equal.

    Args:
      devices: Names such as `"CPU:0"` or `jax.Device` objects; by default all
        devices of JAX's default platform.
      cross_device_ops: The algorithm that adds up the replicas' values; by default
        the fastest one measured for their size.

    Raises:
      DeviceError: A device does not exist or is named twice.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     weight = dl.Variable([1.0, 2.0])
      >>> strategy.num_replicas_in_sync, len(weight.values)
      (2, 2)
    """

    reads_per_replica: ClassVar[bool] = True

    def __init__(
        self,
        devices: Sequence[DeviceLike] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
    ) -> None:
        chosen = selection.available() if devices is None else devices
        super().__init__(Place.on(chosen, self.kind), cross_device_ops)
