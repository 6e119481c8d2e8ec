"""TPUClusterResolver: the cluster is a Cloud TPU, or the TPUs of this machine."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, final

from distlab.cluster import _cloud_tpu
from distlab.cluster.resolver import ClusterResolver, format_master
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ClusterError, ClusterSpecError, DeviceError

_LOCAL = "local"


class TPUSystemMetadata(NamedTuple):
    """What JAX sees of a TPU (`tf.tpu.experimental.TPUSystemMetadata`).

    Attributes:
      num_cores: number of TPU devices.
      num_hosts: number of processes that have some.
      num_of_cores_per_host: TPU devices of each; 0 without TPUs.
      topology: None, as when TensorFlow is not asked for it.
      devices: the `jax.Device`s.
    """

    num_cores: int
    num_hosts: int
    num_of_cores_per_host: int
    topology: None
    devices: tuple[Any, ...]


@final
class TPUClusterResolver(ClusterResolver):
    """A Cloud TPU's workers, asked for anew at every call; or TPUs of this machine.

    JAX programs run on the machines that have the TPUs, so what it counts are
    the TPUs that JAX sees; the addresses are what Google says.
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
        """Finds out which TPU is meant; its workers are asked for later.

        Args:
          tpu: its name, or `"grpc://host:port"` (several, separated by
            commas), or `"local"` for TPUs of this machine. By default what
            KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME or TPU_CONFIG says.
          zone: its zone; by default this machine's.
          project: its project; by default this machine's.
          job_name: the job that the workers are.
          coordinator_name: a further job, of one task; None for none.
          coordinator_address: the address of that task.
          credentials: Google's credentials object; by default those of the
            environment.
          service: what `googleapiclient.discovery.build("tpu", "v1")` gives,
            or something with the same methods.
          discovery_url: where Google's API is described; the environment
            variable TPU_API_DISCOVERY_URL comes first.

        Raises:
          ClusterSpecError: when no TPU is named, or the coordinator has a name
            and no address (TensorFlow starts a server then).
          UnsupportedError: for a list of several TPUs.
        """
        self._tpu = _cloud_tpu.find(
            tpu,
            zone=zone,
            project=project,
            credentials=credentials,
            service=service,
            discovery_url=discovery_url,
        )
        if coordinator_name and not coordinator_address:
            raise ClusterSpecError(
                f"the coordinator {coordinator_name!r} needs an address. Pass "
                'coordinator_address="host:port".'
            )
        named = coordinator_name and coordinator_address
        self._coordinator = {coordinator_name: [coordinator_address]} if named else {}
        self._task_type = job_name
        self._task_id = 0

    @classmethod
    def connect(
        cls, tpu: str | None = None, zone: str | None = None, project: str | None = None
    ) -> TPUClusterResolver:
        """Starts JAX's devices and returns a resolver for their TPUs.

        Args:
          tpu: as for the class, as are `zone` and `project`.
          zone: the TPU's zone.
          project: the TPU's project.

        Raises:
          DeviceError: when JAX sees no TPU.
        """
        resolver = cls(tpu, zone, project)
        if not _tpu_devices():
            raise DeviceError(
                "TPUClusterResolver.connect needs a TPU, and JAX sees none. Run on a TPU machine; "
                'on others TPUStrategy takes TPUClusterResolver(tpu="local") without connect.'
            )
        return resolver

    def cluster_spec(self) -> ClusterSpec:
        """Returns the TPU's workers; an empty cluster for TPUs of this machine.

        Raises:
          ClusterSpecError: when Google does not know the TPU.
          ClusterError: when it is not ready.
          MissingExtraError: when Google has to be asked and its client is not
            installed.
        """
        if self._tpu.name == _LOCAL:
            return ClusterSpec({})
        jobs: dict[Any, Any] = {self.task_type: self._tpu.workers(), **self._coordinator}
        return ClusterSpec(jobs)

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns `grpc://` and the address of a task, by default of the first worker.

        Args:
          task_type: the task's job.
          task_id: the task's index in it.
          rpc_layer: does not matter: TPU workers speak gRPC only.

        Returns:
          The address; empty for TPUs of this machine.

        Raises:
          ClusterSpecError: when there is no such task.
        """
        del rpc_layer
        if self._tpu.name == _LOCAL:
            return ""
        if task_type is None or task_id is None:
            task_type, task_id = self.task_type or "", self.task_id or 0
        return format_master(self.cluster_spec().task_address(task_type, task_id), "grpc")

    def get_master(self) -> str:
        """Returns `master()`."""
        return self.master()

    def get_job_name(self) -> str | None:
        """Returns the job that the workers are."""
        return self.task_type

    def get_coordination_service_leader(self) -> str:
        """Returns TensorFlow's name for the first worker, such as `"/job:worker/task:0"`."""
        return f"/job:{self.get_job_name()}/task:0"

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        """Returns what JAX sees of the TPU; it starts JAX's devices.

        Raises:
          ClusterError: when the processes have different numbers of TPUs.
        """
        devices = _tpu_devices()
        by_process = Counter(device.process_index for device in devices)
        counts = set(by_process.values())
        if len(counts) > 1:
            raise ClusterError(
                "all hosts of a TPU must have the same number of devices; by process there are "
                f"{dict(by_process)}"
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
          ClusterError: when the hosts have different numbers of TPUs.
        """
        del task_type, task_id, config_proto
        return {"TPU": self.get_tpu_system_metadata().num_of_cores_per_host}


def _tpu_devices() -> tuple[Any, ...]:
    import jax

    return tuple(device for device in jax.devices() if device.platform == "tpu")
