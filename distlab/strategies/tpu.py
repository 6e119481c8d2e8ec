"""Synchronous training on TPU cores, or on any devices in their place."""

from __future__ import annotations

from typing import Any, final

from distlab.cluster.resolver import ClusterResolver
from distlab.cross_device_ops import NcclAllReduce
from distlab.errors import ArgumentTypeError, OptionError
from distlab.strategies.abstract import Strategy
from distlab.tpu import DeviceAssignment, Topology


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
        Strategy.__init__(self, assignment.devices, NcclAllReduce())

    @property
    def cluster_resolver(self) -> Any:
        """What describes the TPU, None when nothing was given."""
        return self._resolver
