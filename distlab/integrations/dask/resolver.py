"""The workers of a Dask cluster as workers and parameter servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ArgumentTypeError, ArgumentValueError, ClusterError
from distlab.text.counts import is_count
from distlab.text.shown import shown

if TYPE_CHECKING:
    from distributed import Client


@final
class DaskClusterResolver(ClusterResolver):
    """Workers and parameter servers that are the workers of a Dask cluster.

    Dask's workers that are named `worker-0`, `worker-1`, ... and `ps-0`, ... have these roles; of
    others the first ones are workers and the next ones parameter servers.

    Args:
      client: A `distributed.Client` of the cluster.
      workers: The number of workers; by default all but the parameter servers.
      parameter_servers: The number of parameter servers.

    Attributes:
      client: The client.
      workers: The number of workers.
      parameter_servers: The number of parameter servers.

    Raises:
      ArgumentTypeError: `client` is not a Dask client.
      ArgumentValueError: There would be no worker, or no parameter server.

    Example:
      >>> import distlab as dl
      >>> with dl.launch(workers=2, parameter_servers=1) as cluster:
      ...     resolver = dl.cluster_resolver.DaskClusterResolver(cluster.client)
      ...     resolver.workers, resolver.parameter_servers, resolver.cluster_spec().jobs
      (2, 1, ['worker', 'ps'])
    """

    def __init__(
        self, client: Client, workers: int | None = None, parameter_servers: int = 1
    ) -> None:
        if not is_dask_client(client):
            raise ArgumentTypeError(
                f"A DaskClusterResolver needs a distributed.Client, got {shown(client)}. Make one "
                "of the scheduler's address: distributed.Client('tcp://host:8786')."
            )
        if workers is None:
            workers = len(known_workers(client)) - parameter_servers
        for name, number in (("workers", workers), ("parameter_servers", parameter_servers)):
            if not is_count(number) or number < 1:
                raise ArgumentValueError(
                    f"{name} must be at least 1, got {shown(number)}. Start more Dask workers, or "
                    "ask for fewer of the others."
                )
        self.client = client
        self.workers = workers
        self.parameter_servers = parameter_servers

    def cluster_spec(self) -> ClusterSpec:
        """Returns the addresses of Dask's workers by role."""
        about = known_workers(self.client)
        addresses = {known["name"]: address for address, known in about.items()}
        names = names_in_order(list(addresses), self.workers, self.parameter_servers)
        where = [addresses[name].rpartition("//")[2] for name in names]
        return ClusterSpec({"worker": where[: self.workers], "ps": where[self.workers :]})

    def _unnamed_master(
        self, task_type: str | None, task_id: int | None, rpc_layer: str | None
    ) -> str:
        """Returns the address of Dask's scheduler."""
        del task_type, task_id, rpc_layer
        return str(self.client.scheduler_info()["address"])


def is_dask_client(value: object) -> bool:
    """Returns whether a value is a Dask client; Dask is not imported to see it."""
    return any(
        base.__module__ == "distributed.client" and base.__name__ == "Client"
        for base in type(value).__mro__
    )


def known_workers(client: Client) -> Mapping[str, Any]:
    """Returns what the scheduler knows of its workers, by address; `scheduler_info` may be late."""
    scheduler: Any = client.scheduler
    workers: Mapping[str, Any] = client.sync(scheduler.identity, n_workers=-1)["workers"]
    return workers


def names_in_order(names: Sequence[Any], workers: int, servers: int) -> list[Any]:
    """Returns the Dask worker of each task: those named after a task, then the others in order."""
    tasks = [f"worker-{n}" for n in range(workers)] + [f"ps-{n}" for n in range(servers)]
    if len(names) < len(tasks):
        raise ClusterError(
            f"The cluster has {workers} workers and {servers} parameter servers, and Dask's "
            f"scheduler has {len(names)} workers: {sorted(map(str, names))}. Start more, or ask "
            "for fewer."
        )
    named = {str(name): name for name in names if str(name) in tasks}
    rest = iter(sorted((n for n in names if str(n) not in named), key=_natural))
    return [named[task] if task in named else next(rest) for task in tasks]


def _natural(name: Any) -> tuple[int, Any]:
    return (0, name) if isinstance(name, int) else (1, str(name))
