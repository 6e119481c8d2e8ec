"""ClusterResolver: the interface of all sources of a cluster's description."""

from __future__ import annotations

import abc
from collections import Counter
from typing import Any

from distlab.cluster.spec import ClusterSpec


class ClusterResolver(abc.ABC):
    """A source of a cluster's description (`tf.distribute`'s class of that name).

    A subclass defines `cluster_spec`, and sets `self._task_type`, `self._task_id`
    and `self._rpc_layer` or overrides the properties of these names.

    Resolvers query the cluster manager at each call, because clusters change.

    Example:
      >>> from distlab.cluster_resolver import ClusterResolver, ClusterSpec
      >>> class Pair(ClusterResolver):
      ...     def cluster_spec(self):
      ...         return ClusterSpec({"worker": ["a:2222", "b:2222"]})
      >>> Pair().master("worker", 1)
      'b:2222'
    """

    @abc.abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """Returns the present cluster."""

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task, as a URL when there is an RPC layer.

        Args:
          task_type: The task's job; by default that of this process.
          task_id: The task's index in that job; by default that of this process.
          rpc_layer: The protocol in front of the address, such as `"grpc"` for
            `"grpc://host:port"`; by default `self.rpc_layer`.

        Returns:
          The address; empty when no task is named and this process has none.

        Raises:
          ClusterSpecError: The cluster has no such task.
        """
        if task_type is None or task_id is None:
            return self._unnamed_master(task_type, task_id, rpc_layer)
        address = self.cluster_spec().task_address(task_type, task_id)
        return format_master(address, rpc_layer or self.rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns the number of accelerators of a task, by kind.

        A process counts its own devices; as in TensorFlow, another task's are
        not counted. The call starts JAX's devices.

        Args:
          task_type: The task's job; by default this process's own task.
          task_id: The task's index in that job.
          config_proto: TensorFlow's session options, which are ignored.

        Returns:
          JAX's platform name in capitals (`"GPU"`, `"TPU"`) to the number of
          devices; 0 for missing kinds. CPU devices do not count.

        Raises:
          ClusterSpecError: The cluster has no such task.
        """
        del config_proto
        self.master(task_type, task_id)  # raises when there is no such task
        one_task = task_type is not None and task_id is not None
        if one_task and (task_type, task_id) != (self.task_type, self.task_id):
            return Counter()
        return local_accelerators()

    @property
    def environment(self) -> str | None:
        """The environment of the cluster: `"google"` inside of Google, otherwise empty."""
        return ""

    @property
    def task_type(self) -> str | None:
        """The job of this process (`"chief"`, `"worker"`, `"ps"`, ...); None when not known."""
        return self._set_or_own("task_type")

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job; None when not known."""
        return self._set_or_own("task_id")

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol in front of addresses, such as `"grpc"`; None for plain addresses."""
        return self._set_or_own("rpc_layer")

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def _unnamed_master(
        self, task_type: str | None, task_id: int | None, rpc_layer: str | None
    ) -> str:
        """Returns the address of this process's own task, where no task was named."""
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        known = task_type is not None and task_id is not None
        return self.master(task_type, task_id, rpc_layer) if known else ""

    def _set_or_own(self, name: str) -> Any:
        value = getattr(self, f"_{name}", None)
        return self._own(name) if value is None else value

    def _own(self, name: str) -> Any:
        """Returns a property's value where it was not set."""
        del name


def format_master(address: str, rpc_layer: str | None) -> str:
    """Returns an address with its protocol in front, when there is one."""
    return f"{rpc_layer}://{address}" if rpc_layer else address


def local_accelerators() -> dict[str, int]:
    """Returns the number of devices of this process by JAX's platform name, without CPUs."""
    import jax

    devices: list[Any] = jax.local_devices()
    return Counter(d.platform.upper() for d in devices if d.platform != "cpu")
