"""Synchronous training on the devices of one machine, with a copy of each variable on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from distlab.collectives.cross_device_ops import CrossDeviceOps
from distlab.devices import selection
from distlab.devices.selection import DeviceLike
from distlab.step.place import Place
from distlab.strategies.abstract import Strategy


@final
class MirroredStrategy(Strategy):
    """One replica on each device, all working on a step together.

    Variables made in its scope are mirrored: every device holds a copy, and
    they stay equal (`tf.distribute.MirroredStrategy`).

    Args:
      devices: names such as `"CPU:0"` or `jax.Device` objects; by default all
        devices of JAX's default platform.

      cross_device_ops: how replicas' values are added up; by default the
        fastest that was measured for their size.

    Raises:
      DeviceError: a device does not exist or is named twice.
    """

    reads_per_replica: ClassVar[bool] = True

    def __init__(
        self,
        devices: Sequence[DeviceLike] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
    ) -> None:
        chosen = selection.available() if devices is None else devices
        super().__init__(Place.on(chosen, type(self).__name__), cross_device_ops)
