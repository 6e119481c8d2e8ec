"""GCEClusterResolver: the cluster is an instance group of Google Compute Engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

from distlab.cluster import _google_api
from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.spec import ClusterSpec


@final
class GCEClusterResolver(ClusterResolver):
    """The running machines of an instance group, queried at each call.

    Google does not assign tasks to machines: pass each its own `task_id`. With
    Google's client installed, `GCEClusterResolver("project", "zone", "group", 8470)`
    queries the group; `service` replaces the client.

    Example:
      >>> from unittest import mock
      >>> from distlab.cluster_resolver import GCEClusterResolver
      >>> service = mock.MagicMock()  # instead of Google's client
      >>> groups = service.instanceGroups()
      >>> groups.listInstances().execute.return_value = {"items": [{"instance": "zone/vm-0"}]}
      >>> groups.listInstances_next.return_value = None
      >>> service.instances().get().execute.return_value = {
      ...     "networkInterfaces": [{"networkIP": "10.0.0.2"}]
      ... }
      >>> GCEClusterResolver("project", "zone", "group", 8470, service=service).master()
      'grpc://10.0.0.2:8470'
    """

    def __init__(  # noqa: PLR0917  # the order is TensorFlow's
        self,
        project: str,
        zone: str,
        instance_group: str,
        port: int,
        task_type: str = "worker",
        task_id: int | None = 0,
        rpc_layer: str | None = "grpc",
        credentials: Any = "default",
        service: Any = None,
    ) -> None:
        """Connects to Google's API, unless a service is passed.

        Args:
          project: Name of the project.
          zone: Zone of the instance group.
          instance_group: Name of the instance group.
          port: The port at which every task listens.
          task_type: The job of the machines.
          task_id: The index of this machine in the job.
          rpc_layer: The protocol in front of addresses.
          credentials: Google's credentials object; by default those of the
            environment.
          service: The result of `googleapiclient.discovery.build("compute", "v1")`,
            or an object with the same methods; `credentials` is then not used.

        Raises:
          MissingExtraError: No service is passed, and the package
            google-api-python-client is not installed.
        """
        self._where = {"project": project, "zone": zone}
        self._instance_group = instance_group
        self._port = port
        self._job = self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        own = service is None
        self._service = _google_api.build_service("compute", credentials) if own else service

    def cluster_spec(self) -> ClusterSpec:
        """Returns the machines that are running, sorted by address, as in TensorFlow."""
        return ClusterSpec({self._job: sorted(map(self._address, self._instances()))})

    def _instances(self) -> Iterator[str]:
        """Yields the names of the running machines, page by page."""
        groups = self._service.instanceGroups()
        request = groups.listInstances(
            **self._where,
            instanceGroup=self._instance_group,
            body={"instanceState": "RUNNING"},
            orderBy="name",
        )
        while request is not None:
            response = request.execute()
            # Google leaves the key out when there is nothing to list.
            for item in response.get("items", []):
                yield item["instance"].rpartition("/")[2]
            request = groups.listInstances_next(
                previous_request=request, previous_response=response
            )

    def _address(self, instance: str) -> str:
        details = self._service.instances().get(instance=instance, **self._where).execute()
        return f"{details['networkInterfaces'][0]['networkIP']}:{self._port}"
