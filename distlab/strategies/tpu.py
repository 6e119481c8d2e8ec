"""Synchronous training on TPU cores, or on other devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.cluster.resolver import ClusterResolver
from distlab.collectives.cross_device_ops import NcclAllReduce
from distlab.devices.topology import DeviceAssignment, Topology
from distlab.errors import ArgumentValueError
from distlab.step.programs.place import Place
from distlab.strategies.abstract import Strategy
from distlab.text.shown import shown


class TPUStrategy(Strategy):
    """One replica on each core (`tf.distribute.TPUStrategy`).

    It runs on any platform: without TPUs, every local device runs a replica. The
    platform's all-reduce adds up the replicas' values, in programs and from Python.

    Args:
      tpu_cluster_resolver: The resolver of the TPU, returned as `cluster_resolver`.
      experimental_device_assignment: The device of each replica; by default every
        local device runs one.

    Example:
      >>> import distlab as dl
      >>> resolver = dl.cluster_resolver.TPUClusterResolver(tpu="local")
      >>> dl.TPUStrategy(resolver).num_replicas_in_sync
      8
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        experimental_device_assignment: DeviceAssignment | None = None,
    ) -> None:
        assignment = experimental_device_assignment
        if assignment is None:
            topology = Topology()
            assignment = DeviceAssignment.build(topology, len(topology.devices))
        self.device_assignment = assignment
        self._resolver = tpu_cluster_resolver
        super().__init__(Place.on(assignment.devices, self.kind), NcclAllReduce())

    def experimental_assign_to_logical_device(self, tensor: Any, logical_device_id: int) -> Any:
        """Returns the value unchanged: a replica has one core, number 0.

        Args:
          tensor: The value.
          logical_device_id: The number of the core, 0.

        Raises:
          ArgumentValueError: `logical_device_id` is not 0.

        Example:
          >>> import distlab as dl
          >>> dl.TPUStrategy().experimental_assign_to_logical_device(7.0, 0)
          7.0
        """
        if logical_device_id != 0:
            raise ArgumentValueError(
                "logical_device_id must be 0, the one core that a replica has here, got "
                f"{shown(logical_device_id)}. To split a model over devices use jax.sharding."
            )
        return tensor

    def experimental_split_to_logical_devices(
        self, tensor: Any, partition_dimensions: Sequence[int]
    ) -> Any:
        """Returns the value unchanged: a replica has one core, so each dimension has one part.

        Args:
          tensor: The value.
          partition_dimensions: The number of parts of each dimension, 1.

        Raises:
          ArgumentValueError: A number is not 1, or there is not one for each dimension.

        Example:
          >>> import distlab as dl
          >>> dl.TPUStrategy().experimental_split_to_logical_devices([1.0, 2.0], [1])
          [1.0, 2.0]
        """
        dimensions = list(partition_dimensions)
        if dimensions != [1] * np.ndim(tensor):
            raise ArgumentValueError(
                f"partition_dimensions must be {[1] * np.ndim(tensor)}, as a replica has one core "
                f"here, got {shown(dimensions)}. To split a model over devices use jax.sharding."
            )
        return tensor

    def experimental_replicate_to_logical_devices(self, tensor: Any) -> Any:
        """Returns the value unchanged: a replica has one core.

        Args:
          tensor: The value.

        Example:
          >>> import distlab as dl
          >>> dl.TPUStrategy().experimental_replicate_to_logical_devices(7.0)
          7.0
        """
        return tensor

    @property
    def cluster_resolver(self) -> Any:
        """The resolver of the TPU; None when none was passed."""
        return self._resolver
