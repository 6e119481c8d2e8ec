"""Synchronous training on TPU cores, or on other devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distlab.cluster.resolver import ClusterResolver
from distlab.collectives.cross_device_ops import NcclAllReduce
from distlab.devices.topology import DeviceAssignment, Topology
from distlab.errors import ArgumentValueError
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy
from distlab.strategies.model_axis import ModelLayouts, replicated, split
from distlab.text.counts import is_count, is_positive_count
from distlab.text.shown import shown


class TPUStrategy(Strategy):
    """One replica on each core, or on a block of cores (`tf.distribute.TPUStrategy`).

    It runs on any platform: without TPUs, every local device runs a replica. The
    platform's all-reduce adds up the replicas' values, in programs and from Python. The devices of
    a replica are a model axis, as with `MirroredStrategy(model_axis=...)`.

    Args:
      tpu_cluster_resolver: The resolver of the TPU, returned as `cluster_resolver`.
      experimental_device_assignment: The devices of each replica; by default every
        local device runs one.
      experimental_spmd_xla_partitioning: Has no effect: XLA always divides one program over the
        devices of a replica.
      layouts: Layouts of variables by patterns of their names; see `MirroredStrategy`.

    Example:
      >>> import distlab as dl
      >>> resolver = dl.cluster_resolver.TPUClusterResolver(tpu="local")
      >>> dl.TPUStrategy(resolver).num_replicas_in_sync
      8
      >>> pairs = dl.tpu.DeviceAssignment.build(
      ...     dl.tpu.Topology(), num_replicas=4, computation_shape=[1, 1, 1, 2]
      ... )
      >>> dl.TPUStrategy(resolver, pairs).num_replicas_in_sync
      4
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        experimental_device_assignment: DeviceAssignment | None = None,
        experimental_spmd_xla_partitioning: bool = False,
        *,
        layouts: Mapping[str, Any] | None = None,
    ) -> None:
        del experimental_spmd_xla_partitioning
        assignment = experimental_device_assignment
        if assignment is None:
            topology = Topology()
            assignment = DeviceAssignment.build(topology, len(topology.devices))
        self.device_assignment = assignment
        self._resolver = tpu_cluster_resolver
        place = Place.on(assignment.devices, self.kind, assignment.num_cores_per_replica)
        super().__init__(place, NcclAllReduce())
        self.layouts = ModelLayouts(layouts or {})

    def experimental_assign_to_logical_device(self, tensor: Any, logical_device_id: int) -> Any:
        """Returns a value that lies whole on a device of the replica.

        XLA divides one program over all devices of a replica, so in a step the value lies whole on
        each of them; outside of steps it is returned unchanged.

        Args:
          tensor: The value.
          logical_device_id: The number of the device among the replica's.

        Raises:
          ArgumentValueError: The replica has no such device.

        Example:
          >>> import distlab as dl
          >>> dl.TPUStrategy().experimental_assign_to_logical_device(7.0, 0)
          7.0
        """
        devices = self.mesh.model
        if not is_count(logical_device_id) or logical_device_id >= devices:
            raise ArgumentValueError(
                f"logical_device_id must be below {devices}, the number of a replica's devices, "
                f"got {shown(logical_device_id)}. DeviceAssignment.build gives a replica several."
            )
        return replicated(tensor)

    def experimental_split_to_logical_devices(
        self, tensor: Any, partition_dimensions: Sequence[int]
    ) -> Any:
        """Returns a value that is divided over the devices of the replica.

        In a step, operations on it are divided, too; outside of steps it is returned unchanged,
        and variables are divided by a layout.

        Args:
          tensor: The value.
          partition_dimensions: The number of parts of each dimension; their product is the
            number of the replica's devices.

        Raises:
          ArgumentValueError: There is not a number for each dimension, or the product is another.

        Example:
          >>> import distlab as dl
          >>> dl.TPUStrategy().experimental_split_to_logical_devices([1.0, 2.0], [1])
          [1.0, 2.0]
        """
        parts, shape = list(partition_dimensions), np.shape(tensor)
        if len(parts) != len(shape) or not all(map(is_positive_count, parts)):
            raise ArgumentValueError(
                "partition_dimensions must have a positive number for each dimension, got "
                f"{shown(parts)} for the shape {list(shape)}."
            )
        if math.prod(parts) != self.mesh.model:
            raise ArgumentValueError(
                f"The product of partition_dimensions must be {self.mesh.model}, the number of a "
                f"replica's devices, got {shown(parts)}. DeviceAssignment.build gives it several."
            )
        return split(tensor, parts)

    def experimental_replicate_to_logical_devices(self, tensor: Any) -> Any:
        """Returns a value that lies whole on each device of the replica.

        Args:
          tensor: The value.

        Example:
          >>> import distlab as dl
          >>> dl.TPUStrategy().experimental_replicate_to_logical_devices(7.0)
          7.0
        """
        return replicated(tensor)

    @property
    def cluster_resolver(self) -> Any:
        """The resolver of the TPU; None when none was passed."""
        return self._resolver
