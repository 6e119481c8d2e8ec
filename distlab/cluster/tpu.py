"""TPUClusterResolver: the cluster is a Cloud TPU, or the TPUs of this machine."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, final

from distlab.cluster import _google_api
from distlab.cluster.resolver import ClusterResolver, format_master
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ClusterError, ClusterSpecError, DeviceError, UnsupportedError

_LOCAL = "local"
_GRPC = "grpc://"
_PORT = "8470"


class TPUSystemMetadata(NamedTuple):
    """The TPU devices that JAX sees (`tf.tpu.experimental.TPUSystemMetadata`).

    Attributes:
      num_cores: Number of TPU devices.
      num_hosts: Number of processes that have some.
      num_of_cores_per_host: TPU devices of each process; 0 without TPUs.
      topology: None, TensorFlow's default.
      devices: The `jax.Device`s.
    """

    num_cores: int
    num_hosts: int
    num_of_cores_per_host: int
    topology: None
    devices: tuple[Any, ...]


@final
class TPUClusterResolver(ClusterResolver):
    """A Cloud TPU's workers, queried at each call; or TPUs of this machine.

    JAX programs run on the machines that have the TPUs, so it counts the TPUs
    that JAX sees; the addresses are Google's.

    Example:
      >>> from distlab.cluster_resolver import TPUClusterResolver
      >>> resolver = TPUClusterResolver("grpc://10.0.0.2,grpc://10.0.0.3")
      >>> resolver.cluster_spec().as_dict(), resolver.master()
      ({'worker': ['10.0.0.2:8470', '10.0.0.3:8470']}, 'grpc://10.0.0.2:8470')
      >>> TPUClusterResolver("local").num_accelerators()
      {'TPU': 0}
    """

    def __init__(  # noqa: PLR0917  # the order is TensorFlow's
        self,
        tpu: str | bytes | list[str] | None = None,
        zone: str | None = None,
        project: str | None = None,
        job_name: str = "worker",
        coordinator_name: str | None = None,
        coordinator_address: str | None = None,
        credentials: Any = "default",
        service: Any = None,
        discovery_url: str | None = None,
    ) -> None:
        """Determines the TPU; its workers are queried later.

        Args:
          tpu: Its name, or `"grpc://host:port"` (several, separated by
            commas), or `"local"` for TPUs of this machine. By default the value of
            KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME or TPU_CONFIG.
          zone: Its zone; by default this machine's.
          project: Its project; by default this machine's.
          job_name: The job of the workers.
          coordinator_name: A further job, of one task; None for none.
          coordinator_address: The address of that task.
          credentials: Google's credentials object; by default those of the
            environment.
          service: The result of `googleapiclient.discovery.build("tpu", "v1")`,
            or an object with the same methods.
          discovery_url: URL of the description of Google's API; the environment
            variable TPU_API_DISCOVERY_URL overrides it.

        Raises:
          ClusterSpecError: No TPU is named.
          UnsupportedError: Several TPUs are named.
        """
        self._tpu, zone, project = _named(tpu, zone, project)
        self._where = zone, project
        url = os.environ.get("TPU_API_DISCOVERY_URL") or discovery_url
        self._service: Callable[[], Any] = lambda: (
            service or _google_api.build_service("tpu", credentials, url)
        )
        self._coordinator = {coordinator_name: [coordinator_address]} if coordinator_name else {}
        self._task_type = job_name
        self._task_id = 0

    @classmethod
    def connect(
        cls, tpu: str | None = None, zone: str | None = None, project: str | None = None
    ) -> TPUClusterResolver:
        """Starts JAX's devices and returns a resolver for their TPUs.

        Args:
          tpu: The TPU, as in the constructor.
          zone: The TPU's zone.
          project: The TPU's project.

        Raises:
          DeviceError: JAX sees no TPU.
        """
        resolver = cls(tpu, zone, project)
        if not _tpu_devices():
            raise DeviceError(
                "TPUClusterResolver.connect needs a TPU, and JAX sees none. Run on a TPU machine; "
                'on others pass TPUClusterResolver(tpu="local") to TPUStrategy without connect.'
            )
        return resolver

    def cluster_spec(self) -> ClusterSpec:
        """Returns the TPU's workers; an empty cluster for TPUs of this machine.

        Raises:
          ClusterSpecError: Google does not know the TPU.
          ClusterError: The TPU is not ready.
          MissingExtraError: Google's API is needed and its client is not installed.
        """
        if self._tpu == _LOCAL:
            return ClusterSpec({})
        jobs: dict[Any, Any] = {self.task_type: self._workers(), **self._coordinator}
        return ClusterSpec(jobs)

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns `grpc://` and the address of a task, by default of the first worker.

        Args:
          task_type: The task's job.
          task_id: The task's index in it.
          rpc_layer: Ignored: TPU workers speak gRPC only.

        Returns:
          The address; empty for TPUs of this machine.

        Raises:
          ClusterSpecError: There is no such task.
        """
        del rpc_layer
        if self._tpu == _LOCAL:
            return ""
        if task_type is None or task_id is None:
            task_type, task_id = self.task_type or "", self.task_id or 0
        return format_master(self.cluster_spec().task_address(task_type, task_id), "grpc")

    def get_master(self) -> str:
        """Returns `master()`."""
        return self.master()

    def get_job_name(self) -> str | None:
        """Returns the job of the workers."""
        return self.task_type

    def get_coordination_service_leader(self) -> str:
        """Returns TensorFlow's name for the first worker, such as `"/job:worker/task:0"`."""
        return f"/job:{self.get_job_name()}/task:0"

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        """Returns the TPU devices that JAX sees; the call starts JAX's devices.

        Raises:
          ClusterError: The processes have different numbers of TPUs.
        """
        devices = _tpu_devices()
        by_process = Counter(device.process_index for device in devices)
        counts = set(by_process.values())
        if len(counts) > 1:
            raise ClusterError(
                "All hosts of a TPU must have the same number of devices; by process there are "
                f"{dict(by_process)}."
            )
        return TPUSystemMetadata(
            len(devices), len(by_process), max(counts, default=0), None, devices
        )

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns `{"TPU": n}`: the TPU devices of each host that JAX sees; 0 without TPUs.

        Raises:
          ClusterError: The hosts have different numbers of TPUs.
        """
        del task_type, task_id, config_proto
        return {"TPU": self.get_tpu_system_metadata().num_of_cores_per_host}

    def _workers(self) -> list[str]:
        """Returns `host:port` of each worker, queried at each call."""
        if self._tpu.startswith(_GRPC):
            return [_address(entry) for entry in self._tpu.split(",")]
        zone, project = self._where
        project = project or _google_api.metadata("project/project-id")
        zone = zone or _google_api.metadata("instance/zone").rpartition("/")[2]
        path = f"projects/{project}/locations/{zone}/nodes/{self._tpu}"
        nodes = self._service().projects().locations().nodes()
        try:
            described = dict(nodes.get(name=path).execute())
        except Exception as error:
            raise ClusterSpecError(
                f"Google does not know a TPU {path}: {error}. Check tpu=, zone= and project=."
            ) from error
        if described.get("state") != "READY":
            raise ClusterError(
                f'The TPU "{self._tpu}" must be READY; its state is "{described.get("state")}". '
                "Try again when it is."
            )
        endpoints = described.get("networkEndpoints", [described])
        return [f"{endpoint['ipAddress']}:{endpoint['port']}" for endpoint in endpoints]


def _named(
    tpu: str | bytes | list[str] | None, zone: str | None, project: str | None
) -> tuple[str, str | None, str | None]:
    """Returns the TPU that is passed, or that the environment names as in TensorFlow."""
    if isinstance(tpu, list):
        if len(tpu) > 1:
            raise UnsupportedError(
                f"A TPUClusterResolver is for one TPU, got {len(tpu)}: {tpu}. Name one."
            )
        tpu = tpu[0]
    name = tpu.decode() if isinstance(tpu, bytes) else tpu
    for variable in ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"):
        name = name or os.environ.get(variable)
    if not name:
        node = json.loads(os.environ.get("TPU_CONFIG") or "{}")
        name = node.get("tpu_node_name")
        zone, project = zone or node.get("zone"), project or node.get("project")
    if not name:
        raise ClusterSpecError(
            'No TPU was named, and TPU_NAME is not set. Pass tpu="local" for TPUs of this '
            f'machine, or a name, or "{_GRPC}host:{_PORT}".'
        )
    return name, zone, project


def _address(entry: str) -> str:
    host, _, port = entry.removeprefix(_GRPC).partition(":")
    return f"{host}:{port or _PORT}"


def _tpu_devices() -> tuple[Any, ...]:
    import jax

    return tuple(device for device in jax.devices() if device.platform == "tpu")
