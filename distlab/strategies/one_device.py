"""Everything on one device: the same program, without distribution."""

from __future__ import annotations

from typing import final

from distlab.devices.selection import DeviceLike
from distlab.step.place import Place
from distlab.strategies.abstract import Strategy


@final
class OneDeviceStrategy(Strategy):
    """One replica on one device (`tf.distribute.OneDeviceStrategy`).

    Args:
      device: a name such as `"CPU:0"`, or a `jax.Device`.

    Raises:
      DeviceError: the device does not exist.
    """

    def __init__(self, device: DeviceLike) -> None:
        super().__init__(Place.on([device], type(self).__name__))
