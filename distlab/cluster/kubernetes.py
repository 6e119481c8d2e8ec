"""KubernetesClusterResolver: the cluster is the running pods that labels select."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, final

from distlab.cluster.resolver import ClusterResolver, address_of_task
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ClusterError, ClusterSpecError, MissingExtraError

_DEFAULT_JOBS = {"worker": ["job-name=tensorflow"]}
_CONNECT_AND_READ_SECONDS = (5, 10)  # tried four times at most


class KubernetesExecutableLocation(enum.Enum):
    """Where this process runs, which decides how it finds the Kubernetes API.

    `WITHIN_CLUSTER`: in a pod of the cluster, with its service account.
    `OFF_CLUSTER`: elsewhere, with the kubeconfig file.
    """

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


@final
class KubernetesClusterResolver(ClusterResolver):
    """Pods selected by labels, asked for anew at every call.

    Kubernetes does not say which task a process is: set `task_type` and
    `task_id` yourself.

    An address is the pod's own IP, which other pods reach. (TensorFlow 2.21
    takes its host's, which they reach only with host networking; there the two
    are the same.)
    """

    def __init__(
        self,
        job_to_label_mapping: Mapping[str, Sequence[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
        executable_location: KubernetesExecutableLocation = (
            KubernetesExecutableLocation.WITHIN_CLUSTER
        ),
    ) -> None:
        """Connects to Kubernetes, unless a client is given.

        Args:
          job_to_label_mapping: job name to the label selectors of its pods;
            by default the workers are `job-name=tensorflow`.
          tf_server_port: the port at which every task listens.
          rpc_layer: the protocol in front of addresses.
          override_client: what is asked in place of `kubernetes.client.CoreV1Api`;
            only its `list_pod_for_all_namespaces(label_selector=)` is called.
          executable_location: how to find the API when no client is given.

        Raises:
          MissingExtraError: without a client, when the package kubernetes is
            not installed.
          ClusterError: without a client, when there is no configuration.
          ClusterSpecError: without a client, when `executable_location` is no
            `KubernetesExecutableLocation`.
        """
        self._jobs = {
            job: tuple(labels) for job, labels in (job_to_label_mapping or _DEFAULT_JOBS).items()
        }
        self._port = tf_server_port
        self._rpc_layer = rpc_layer
        own = override_client is None
        self._client: Any = _Api(executable_location) if own else override_client

    def cluster_spec(self) -> ClusterSpec:
        """Returns the pods as they are now: selector by selector, sorted by name.

        Raises:
          ClusterError: when a selected pod is not running, or Kubernetes does
            not answer.
        """
        return ClusterSpec(
            {
                job: [address for label in labels for address in self._addresses(label)]
                for job, labels in self._jobs.items()
            }
        )

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task, by default the one set as this process's own.

        Returns:
          The address with its protocol; empty when no task is named or set.

        Raises:
          ClusterSpecError: when the cluster has no such task.
          ClusterError: as `cluster_spec` does.
        """
        return address_of_task(self, task_type, task_id, rpc_layer)

    def _addresses(self, label: str) -> list[str]:
        pods = self._client.list_pod_for_all_namespaces(label_selector=label).items
        return [self._address(pod) for pod in sorted(pods, key=lambda pod: pod.metadata.name)]

    def _address(self, pod: Any) -> str:
        name, status = pod.metadata.name, pod.status
        if status.phase != "Running":
            raise ClusterError(
                f'all pods of a cluster must be running; pod "{name}" is in phase '
                f'"{status.phase}". Ask again when it runs.'
            )
        ip = getattr(status, "pod_ip", None) or status.host_ip
        return f"{ip}:{self._port}"


class _Api:
    """Kubernetes's own client, with limits on how long it waits and errors of distlab."""

    def __init__(self, location: object) -> None:
        try:
            config = importlib.import_module("kubernetes.config")
            self._package = importlib.import_module("kubernetes.client")
        except ImportError as error:
            raise MissingExtraError(
                "KubernetesClusterResolver asks Kubernetes with the package kubernetes, which is "
                "not installed. Install it with: pip install kubernetes; or pass override_client="
            ) from error
        if not isinstance(location, KubernetesExecutableLocation):
            raise ClusterSpecError(
                "executable_location must be a KubernetesExecutableLocation, got " + repr(location)
            )
        within = location is KubernetesExecutableLocation.WITHIN_CLUSTER
        try:
            (config.load_incluster_config if within else config.load_kube_config)()
        except config.ConfigException as error:
            raise ClusterError(
                f"there is no configuration for {location.name} ({error}). In a pod use "
                "WITHIN_CLUSTER; elsewhere OFF_CLUSTER and a kubeconfig file."
            ) from error
        self._api = self._package.CoreV1Api()

    def list_pod_for_all_namespaces(self, label_selector: str) -> Any:
        """Lists the pods that a label selects."""
        transport = importlib.import_module("urllib3.exceptions")
        try:
            return self._api.list_pod_for_all_namespaces(
                label_selector=label_selector, _request_timeout=_CONNECT_AND_READ_SECONDS
            )
        except (self._package.ApiException, transport.HTTPError) as error:
            raise ClusterError(
                f"Kubernetes did not list the pods with {label_selector} "
                f"({getattr(error, 'reason', error)}). It must be in reach, and allow this account "
                "to list pods in all namespaces."
            ) from error
