"""One replica on one device: the same program, without distribution."""

from __future__ import annotations

from typing import ClassVar

from distlab.devices.selection import DeviceLike
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy


class OneDeviceStrategy(Strategy):
    """One replica on one device (`tf.distribute.OneDeviceStrategy`).

    Args:
      device: A name such as `"CPU:0"`, or a `jax.Device`.

    Raises:
      DeviceError: The device does not exist.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.OneDeviceStrategy("CPU:1")
      >>> strategy.run(lambda x: x + 1.0, args=(2,)).devices()
      {CpuDevice(id=1)}
    """

    keeps_one_copy: ClassVar[bool] = True

    def __init__(self, device: DeviceLike) -> None:
        super().__init__(Place.on([device], self.kind))
