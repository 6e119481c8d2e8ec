"""Synchronous training on TPU cores, or on any devices in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from distlab.cluster.resolver import ClusterResolver
from distlab.collectives.cross_device_ops import NcclAllReduce
from distlab.devices.topology import DeviceAssignment, Topology
from distlab.errors import ArgumentTypeError, ArgumentValueError, OptionError
from distlab.step.place import Place
from distlab.strategies.abstract import Strategy


@final
class TPUStrategy(Strategy):
    """One replica on each core (`tf.distribute.TPUStrategy`).

    It runs on any platform: without TPUs its replicas are the devices there
    are. Replicas' values are added up by the platform's all-reduce, in
    programs and from Python.

    Args:
      tpu_cluster_resolver: describes the TPU; kept as `cluster_resolver`.
      experimental_device_assignment: which devices run which replicas; by
        default every local device runs one.

    Raises:
      ArgumentTypeError: the resolver is none.
      OptionError: the assignment is none.
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        experimental_device_assignment: DeviceAssignment | None = None,
    ) -> None:
        if tpu_cluster_resolver is not None and not isinstance(
            tpu_cluster_resolver, ClusterResolver
        ):
            raise ArgumentTypeError(
                "tpu_cluster_resolver must be a ClusterResolver or None, got a "
                f"{type(tpu_cluster_resolver).__name__}. Write TPUClusterResolver(tpu=...); an "
                "assignment is given as experimental_device_assignment=."
            )
        assignment = experimental_device_assignment
        if assignment is None:
            topology = Topology()
            assignment = DeviceAssignment.build(topology, len(topology.devices))
        if not isinstance(assignment, DeviceAssignment):
            raise OptionError(
                "experimental_device_assignment must be a distlab.tpu.DeviceAssignment, got "
                f"{assignment!r:.80}."
            )
        self.device_assignment = assignment
        self._resolver = tpu_cluster_resolver
        super().__init__(Place.on(assignment.devices, type(self).__name__), NcclAllReduce())

    def experimental_assign_to_logical_device(self, tensor: Any, logical_device_id: int) -> Any:
        """Returns the value: a replica has one core, number 0, so it is there already.

        Raises:
          ArgumentValueError: another core.
        """
        if logical_device_id != 0:
            raise ArgumentValueError(
                "logical_device_id must be 0, the one core that a replica has here, got "
                f"{logical_device_id!r}. To split a model over devices use jax.sharding."
            )
        return tensor

    def experimental_split_to_logical_devices(
        self, tensor: Any, partition_dimensions: Sequence[int]
    ) -> Any:
        """Returns the value: with one core a replica, each dimension has one part.

        Raises:
          ArgumentValueError: more parts, or not as many numbers as dimensions.
        """
        dimensions = list(partition_dimensions)
        if dimensions != [1] * np.ndim(tensor):
            raise ArgumentValueError(
                f"partition_dimensions must be {[1] * np.ndim(tensor)}, as a replica has one core "
                f"here, got {dimensions!r:.80}. To split a model over devices use jax.sharding."
            )
        return tensor

    def experimental_replicate_to_logical_devices(self, tensor: Any) -> Any:
        """Returns the value: a replica has one core, so there is nothing to copy."""
        return tensor

    @property
    def cluster_resolver(self) -> Any:
        """What describes the TPU, None when nothing was given."""
        return self._resolver
