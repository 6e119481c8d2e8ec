"""SimpleClusterResolver: hands back the description that it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from distlab.cluster.resolver import ClusterResolver, format_master
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ArgumentTypeError


@final
class SimpleClusterResolver(ClusterResolver):
    """A cluster that the program itself describes."""

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
        """Keeps a description.

        Args:
          cluster_spec: the cluster.
          master: what `master()` says when it is not asked for a task.
          task_type: the job of this process.
          task_id: its index in that job.
          environment: what `environment` says.
          num_accelerators: what `num_accelerators()` says; nothing by default.
          rpc_layer: the protocol in front of addresses, such as `"grpc"`.

        Raises:
          ArgumentTypeError: when `cluster_spec` is not a `ClusterSpec`, or
            `master` not a string.
        """
        if not isinstance(cluster_spec, ClusterSpec):
            raise ArgumentTypeError(
                f"cluster_spec must be a ClusterSpec, got {type(cluster_spec).__name__}. "
                "Put ClusterSpec(...) around it."
            )
        if not isinstance(master, str):
            raise ArgumentTypeError(f"master must be a string, got {master!r}")
        self._cluster_spec = cluster_spec
        self._master = master
        self._task_type = task_type
        self._task_id = task_id
        self._environment = environment
        self._num_accelerators = num_accelerators
        self._rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster that was given."""
        return self._cluster_spec

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task, or the `master` given when none is named.

        Raises:
          ClusterSpecError: when the cluster has no such task.
        """
        if task_type is not None and task_id is not None:
            address = self._cluster_spec.task_address(task_type, task_id)
        else:
            address = self._master
        return format_master(address, rpc_layer or self._rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns the numbers that were given, for every task; nothing is looked up."""
        del task_type, task_id, config_proto
        return dict(self._num_accelerators or {})

    @property
    def environment(self) -> str:
        """What was given."""
        return self._environment
