"""KubernetesClusterResolver: the cluster is the running pods that labels select."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, final

from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ClusterError, MissingExtraError

_DEFAULT_JOBS = {"worker": ["job-name=tensorflow"]}
_CONNECT_AND_READ_SECONDS = (5, 10)  # retried up to three times


class KubernetesExecutableLocation(enum.Enum):
    """The place of this process, which decides how it finds the Kubernetes API.

    Attributes:
      WITHIN_CLUSTER: In a pod of the cluster, with its service account.
      OFF_CLUSTER: Elsewhere, with the kubeconfig file.

    Example:
      >>> from distlab.cluster_resolver import KubernetesExecutableLocation
      >>> list(KubernetesExecutableLocation.__members__)
      ['WITHIN_CLUSTER', 'OFF_CLUSTER']
    """

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


@final
class KubernetesClusterResolver(ClusterResolver):
    """Pods selected by labels, queried at each call.

    Kubernetes does not assign tasks to processes: set `task_type` and
    `task_id` yourself.

    An address is the pod's own IP, which other pods can reach. (TensorFlow 2.21
    uses its host's, which they can reach only with host networking; there the two
    are the same.)

    Example:
      >>> from types import SimpleNamespace as Object
      >>> from distlab.cluster_resolver import KubernetesClusterResolver
      >>> pod = Object(
      ...     metadata=Object(name="worker-0"),
      ...     status=Object(phase="Running", pod_ip="10.0.0.2", host_ip="10.9.9.9"),
      ... )
      >>> client = Object(list_pod_for_all_namespaces=lambda label_selector: Object(items=[pod]))
      >>> resolver = KubernetesClusterResolver({"worker": ["app=t"]}, override_client=client)
      >>> resolver.cluster_spec()
      ClusterSpec({'worker': ['10.0.0.2:8470']})
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
        """Connects to Kubernetes, unless a client is passed.

        Args:
          job_to_label_mapping: Job name to the label selectors of its pods;
            by default the workers are `job-name=tensorflow`.
          tf_server_port: The port at which every task listens.
          rpc_layer: The protocol in front of addresses.
          override_client: A replacement for `kubernetes.client.CoreV1Api`;
            only its `list_pod_for_all_namespaces(label_selector=)` is called.
          executable_location: How to find the API when no client is passed.

        Raises:
          MissingExtraError: No client is passed, and the package kubernetes is
            not installed.
        """
        jobs = job_to_label_mapping or _DEFAULT_JOBS
        self._jobs = {job: tuple(labels) for job, labels in jobs.items()}
        self._port = tf_server_port
        self._rpc_layer = rpc_layer
        own = override_client is None
        self._client: Any = _api(executable_location) if own else override_client
        self._options = {"_request_timeout": _CONNECT_AND_READ_SECONDS} if own else {}

    def cluster_spec(self) -> ClusterSpec:
        """Returns the present pods, selector by selector, sorted by name.

        Raises:
          ClusterError: A selected pod is not running.
        """
        return ClusterSpec(
            {
                job: [address for label in labels for address in self._addresses(label)]
                for job, labels in self._jobs.items()
            }
        )

    def _addresses(self, label: str) -> list[str]:
        found = self._client.list_pod_for_all_namespaces(label_selector=label, **self._options)
        pods = found.items
        return [self._address(pod) for pod in sorted(pods, key=lambda pod: pod.metadata.name)]

    def _address(self, pod: Any) -> str:
        name, status = pod.metadata.name, pod.status
        if status.phase != "Running":
            raise ClusterError(
                f'All pods of a cluster must be running; pod "{name}" is in phase '
                f'"{status.phase}". Try again when it runs.'
            )
        ip = getattr(status, "pod_ip", None) or status.host_ip
        return f"{ip}:{self._port}"


def _api(location: KubernetesExecutableLocation) -> Any:
    try:
        config: Any = importlib.import_module("kubernetes.config")
        client: Any = importlib.import_module("kubernetes.client")
    except ImportError as error:
        raise MissingExtraError(
            "KubernetesClusterResolver calls Kubernetes with the package kubernetes, which is "
            "not installed. Install it with: pip install kubernetes; or pass override_client=."
        ) from error
    within = location is KubernetesExecutableLocation.WITHIN_CLUSTER
    (config.load_incluster_config if within else config.load_kube_config)()
    return client.CoreV1Api()
