"""Variables on one device, replicas on several: a parameter server in one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from distlab.collectives.cross_device_ops import CrossDeviceOps
from distlab.devices import selection
from distlab.devices.layouts import Layout, NewVariable, OnOneDevice
from distlab.devices.selection import DeviceLike
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy


class CentralStorageStrategy(Strategy):
    """One copy of each variable (`tf.distribute.experimental.CentralStorageStrategy`).

    Every step sends the variables to the replicas and the aggregated update
    back, which the pages show as bytes moved.

    Args:
      compute_devices: The devices of the replicas; by default all devices.
      parameter_device: The device of the variables; by default the first
        compute device.
      cross_device_ops: The algorithm that adds up the replicas' values.

    Raises:
      DeviceError: A device does not exist or is named twice.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:2")
      >>> with strategy.scope():
      ...     weight = dl.Variable([1.0, 2.0])
      >>> strategy.parameter_device_names, len(weight.values)
      (('CPU:2',), 1)
    """

    keeps_one_copy: ClassVar[bool] = True

    def __init__(
        self,
        compute_devices: Sequence[DeviceLike] | None = None,
        parameter_device: DeviceLike | None = None,
        *,
        cross_device_ops: CrossDeviceOps | None = None,
    ) -> None:
        compute = selection.available() if compute_devices is None else compute_devices
        super().__init__(Place.on(compute, self.kind), cross_device_ops)
        home = [self.mesh.devices[0] if parameter_device is None else parameter_device]
        self._home = selection.find(home)[0]

    @property
    def parameter_device_names(self) -> tuple[str, ...]:
        """The device of the variables."""
        return (selection.name(self._home),)

    def variable_layout(self, *, per_replica: bool, of: NewVariable | None = None) -> Layout:
        """Returns one copy on the parameter device, for ON_READ too, as in TensorFlow."""
        del per_replica, of
        return OnOneDevice(self._home)
