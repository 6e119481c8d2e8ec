"""Synchronous training on the devices of one machine, each with a copy of every variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from distlab.collectives.cross_device_ops import CrossDeviceOps
from distlab.devices import selection
from distlab.devices.selection import DeviceLike
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy
from distlab.strategies.model_axis import ModelLayouts


class MirroredStrategy(Strategy):
    """One replica on each device, in sync (`tf.distribute.MirroredStrategy`).

    Variables made in its scope are mirrored: every replica holds a copy, and
    the copies stay equal.

    With `model_axis=M`, a replica has M devices that are neighbours in the list, and
    `num_replicas_in_sync` is the number of devices divided by M. `run` stays per replica: in the
    function, arrays are whole, and XLA divides the work over the replica's devices as variables
    with a layout ask for (and `jax.lax.with_sharding_constraint(x, P(None, "model"))`).

    Args:
      devices: Names such as `"CPU:0"` or `jax.Device` objects; by default all
        devices of JAX's default platform.
      cross_device_ops: The algorithm that adds up the replicas' values; by default
        the fastest one measured for their size.
      model_axis: The number of devices of each replica.
      layouts: Layouts of variables by patterns of their names (regular expressions that `re.search`
        finds), or Keras' `LayoutMap`. A layout has `"model"` for the dimension that the replica's
        devices divide, and None for the others; variables without one lie whole on each device.

    Raises:
      DeviceError: A device does not exist or is named twice, or `model_axis` does not divide
        their number.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     weight = dl.Variable([1.0, 2.0])
      >>> strategy.num_replicas_in_sync, len(weight.values)
      (2, 2)
      >>> strategy = dl.MirroredStrategy(model_axis=2, layouts={"kernel$": (None, "model")})
      >>> with strategy.scope():
      ...     kernel = dl.Variable(np.ones((4, 6)), name="dense/kernel")
      >>> strategy.num_replicas_in_sync, kernel
      (4, <Variable dense/kernel: float32[4, 6], divided>)
    """

    reads_per_replica: ClassVar[bool] = True

    def __init__(
        self,
        devices: Sequence[DeviceLike] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        *,
        model_axis: int = 1,
        layouts: Mapping[str, Any] | None = None,
    ) -> None:
        chosen = selection.available() if devices is None else devices
        super().__init__(Place.on(chosen, self.kind, model_axis), cross_device_ops)
        self.layouts = ModelLayouts(layouts or {})
