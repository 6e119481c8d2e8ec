"""TFConfigClusterResolver: the cluster of the environment variable TF_CONFIG."""

from __future__ import annotations

import json
import os
from typing import Any, final

from distlab.cluster.resolver import ClusterResolver, format_master
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ClusterSpecError

_EXAMPLE = (
    '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, or unset'
)


@final
class TFConfigClusterResolver(ClusterResolver):
    """The cluster that `TF_CONFIG` describes, read at each call.

    TF_CONFIG is JSON with the keys `cluster` (job name to addresses), `task`
    (`type` and `index` of this process), and optionally `rpc_layer` and
    `session_master`. Without it there is no cluster and no task.

    Example:
      >>> import json, os
      >>> from unittest import mock
      >>> from distlab.cluster_resolver import TFConfigClusterResolver
      >>> workers = {"worker": ["a:2222", "b:2222"]}
      >>> config = json.dumps({"cluster": workers, "task": {"type": "worker", "index": 1}})
      >>> resolver = TFConfigClusterResolver()
      >>> with mock.patch.dict(os.environ, TF_CONFIG=config):
      ...     resolver.task_type, resolver.task_id, resolver.master()
      ('worker', 1, 'b:2222')
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
          task_type: Replaces TF_CONFIG's task type.
          task_id: Replaces its task index.
          rpc_layer: Replaces its RPC layer.
          environment: The value of `environment`.
        """
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self._environment = environment

    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster; an empty one when TF_CONFIG describes none.

        Raises:
          ClusterSpecError: TF_CONFIG can't be read.
          ArgumentTypeError: Its value of `cluster` is not a cluster.
        """
        return ClusterSpec(_tf_config().get("cluster", {}))

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task, this process's own by default.

        Returns:
          TF_CONFIG's `session_master` if it has one; empty when there is at
          most one task, which is this process; otherwise the task's address.

        Raises:
          ClusterSpecError: There are several tasks, and the requested one
            is not among them or not known.
        """
        session_master = _tf_config().get("session_master")
        if session_master is not None:
            return str(session_master)
        cluster = self.cluster_spec()
        jobs = cluster.jobs
        if not jobs or (len(jobs) == 1 and len(cluster.job_tasks(jobs[0])) == 1):
            return ""
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        if task_type is None or task_id is None:
            raise ClusterSpecError(
                f"TF_CONFIG describes the jobs {jobs}, but not which of their tasks this process "
                'is. Add "task": {"type": ..., "index": ...} to it.'
            )
        address = cluster.task_address(task_type, task_id)
        return format_master(address, self.rpc_layer if rpc_layer is None else rpc_layer)

    @property
    def environment(self) -> str | None:
        """The environment passed to the constructor; None by default, as in TensorFlow."""
        return self._environment

    def _own(self, name: str) -> Any:
        """Reads TF_CONFIG, in which numbers may be strings."""
        config = _tf_config()
        if name == "rpc_layer":
            return config.get("rpc_layer")
        value = config.get("task", {}).get({"task_type": "type", "task_id": "index"}[name])
        return int(value) if name == "task_id" and value is not None else value


def _tf_config() -> dict[str, Any]:
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ClusterSpecError(f"TF_CONFIG must be {_EXAMPLE}; got {text!r}: {error}.") from error
    if not isinstance(config, dict):
        raise ClusterSpecError(f"TF_CONFIG must be {_EXAMPLE}; got {text!r}.")
    return config
