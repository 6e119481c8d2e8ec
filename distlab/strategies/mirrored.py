"""Synchronous training on the devices of one machine, each with a copy of every variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from distlab.collectives.cross_device_ops import CrossDeviceOps
from distlab.devices import selection
from distlab.devices.selection import DeviceLike
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy
from distlab.strategies.divided import DividedVariables
from distlab.strategies.model_axis import ModelLayouts


class MirroredStrategy(Strategy):
    """One replica on each device, in sync (`tf.distribute.MirroredStrategy`).

    Variables made in its scope are mirrored: every replica holds a copy, and
    the copies stay equal.

    With `model_axis=M`, a replica has M devices that are neighbours in the list, and
    `num_replicas_in_sync` is the number of devices divided by M. `run` stays per replica: in the
    function, arrays are whole, and XLA divides the work over the replica's devices as variables
    with a layout ask for (and `jax.lax.with_sharding_constraint(x, P(None, "model"))`).

    With `shard_variables`, variables are divided over the replicas along an axis, states of
    optimizers among them, and the step's code does not change: a step gathers what it reads, the
    all-reduce of gradients is a reduce-scatter where parts are enough, and updates are computed on
    parts. Such a variable has one value, so a step in which replicas assign different ones is
    refused. Outside of a step `Variable.value()` is an array in parts. Whole stay small variables,
    those without an axis that the replicas divide evenly, and ON_READ ones.

    Args:
      devices: Names such as `"CPU:0"` or `jax.Device` objects; by default all
        devices of JAX's default platform.
      cross_device_ops: The algorithm that adds up the replicas' values; by default
        the fastest one measured for their size.
      model_axis: The number of devices of each replica.
      layouts: Layouts of variables by patterns of their names (regular expressions that `re.search`
        finds), or Keras' `LayoutMap`. A layout has `"model"` for the dimension that the replica's
        devices divide, and None for the others; variables without one lie whole on each device.
      shard_variables: True divides variables of at least 4 KiB over the replicas; a number those
        of at least so many bytes. Layouts come first.

    Raises:
      ArgumentValueError: `shard_variables` is neither a bool nor a positive number.
      DeviceError: A device does not exist or is named twice, or `model_axis` does not divide
        their number.

    Example:
      >>> import numpy as np
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     weight = dl.Variable([1.0, 2.0])
      >>> strategy.num_replicas_in_sync, len(weight.values)
      (2, 2)
      >>> strategy = dl.MirroredStrategy(model_axis=2, layouts={"kernel$": (None, "model")})
      >>> with strategy.scope():
      ...     kernel = dl.Variable([[0.0] * 6] * 4, name="dense/kernel")
      >>> strategy.num_replicas_in_sync, kernel
      (4, <Variable dense/kernel: float32[4, 6], divided>)
      >>> with dl.MirroredStrategy(shard_variables=True).scope():
      ...     table = dl.Variable(np.ones((1024, 16), np.float32))
      >>> [part.data.shape for part in table.value().addressable_shards][:2]
      [(128, 16), (128, 16)]
    """

    reads_per_replica: ClassVar[bool] = True

    def __init__(
        self,
        devices: Sequence[DeviceLike] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        *,
        model_axis: int = 1,
        layouts: Mapping[str, Any] | None = None,
        shard_variables: bool | int = False,
    ) -> None:
        divided = DividedVariables(shard_variables)
        chosen = selection.available() if devices is None else devices
        place = Place.on(chosen, self.kind, model_axis, divides=divided.least is not None)
        super().__init__(place, cross_device_ops)
        self.divided = divided
        self.layouts = ModelLayouts(layouts or {})
