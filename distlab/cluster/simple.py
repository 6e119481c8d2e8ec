"""SimpleClusterResolver: a description passed by the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from distlab.cluster.resolver import ClusterResolver, format_master
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ArgumentTypeError
from distlab.text.shown import shown


@final
class SimpleClusterResolver(ClusterResolver):
    """A cluster that the program itself describes.

    Example:
      >>> from distlab.cluster_resolver import ClusterSpec, SimpleClusterResolver
      >>> cluster = ClusterSpec({"worker": ["a:2222", "b:2222"]})
      >>> resolver = SimpleClusterResolver(cluster, task_type="worker", task_id=1)
      >>> resolver.master("worker", 0, rpc_layer="grpc"), resolver.task_id
      ('grpc://a:2222', 1)
    """

    def __init__(  # noqa: PLR0917  # the order is TensorFlow's
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: Mapping[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        """Stores a description.

        Args:
          cluster_spec: The cluster.
          master: The result of `master()` when no task is named.
          task_type: The job of this process.
          task_id: Its index in that job.
          environment: The value of `environment`.
          num_accelerators: The result of `num_accelerators()`; empty by default.
          rpc_layer: The protocol in front of addresses, such as `"grpc"`.

        Raises:
          ArgumentTypeError: `cluster_spec` is not a `ClusterSpec`, or `master` not a string.
        """
        if not isinstance(cluster_spec, ClusterSpec):
            raise ArgumentTypeError(
                f"cluster_spec must be a ClusterSpec, got {shown(cluster_spec)}. Pass "
                "ClusterSpec({'worker': ['host:2222']})."
            )
        if not isinstance(master, str):
            raise ArgumentTypeError(f"master must be a string, got {shown(master)}.")
        self._cluster_spec = cluster_spec
        self._master = master
        self._task_type = task_type
        self._task_id = task_id
        self._environment = environment
        self._num_accelerators = num_accelerators
        self._rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster."""
        return self._cluster_spec

    def _unnamed_master(
        self, task_type: str | None, task_id: int | None, rpc_layer: str | None
    ) -> str:
        del task_type, task_id
        return format_master(self._master, rpc_layer or self._rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns the numbers passed to the constructor, for every task."""
        del task_type, task_id, config_proto
        return dict(self._num_accelerators or {})

    @property
    def environment(self) -> str:
        """The environment passed to the constructor."""
        return self._environment
