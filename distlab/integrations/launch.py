"""`distlab.launch`: the processes of a notebook's cluster."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, overload

from distlab.errors import ArgumentTypeError, ArgumentValueError, MissingExtraError, OptionError
from distlab.launching.environment import MOST
from distlab.text.counts import is_count
from distlab.text.shown import shown

if TYPE_CHECKING:
    from distlab.integrations.dask.cluster import ParameterServerCluster
    from distlab.integrations.ipyparallel.cluster import Cluster


@overload
def launch(
    workers: int = 2, devices: int | None = None, *, engines: str | None = None
) -> Cluster: ...


@overload
def launch(workers: int = 2, *, parameter_servers: int) -> ParameterServerCluster: ...


def launch(
    workers: int = 2,
    devices: int | None = None,
    *,
    engines: str | None = None,
    parameter_servers: int | None = None,
) -> Cluster | ParameterServerCluster:
    """Starts worker processes for a notebook, on which functions and cells run together.

    Each worker is an engine of ipyparallel with `TF_CONFIG` in its environment, so a
    `MultiWorkerMirroredStrategy` that is made on all of them has its replicas on all. The
    notebook's own process is not a worker. `%%workers` runs a cell on all of them.

    Programs need no notebook: `distlab launch` runs them from the command line.

    With `parameter_servers` the workers do not wait for one another: a `ParameterServerStrategy`
    is made of the cluster's `resolver`, and a `ClusterCoordinator` schedules functions on them.
    Dask starts these processes.

    Args:
      workers: The number of workers.
      devices: The number of CPU devices of each worker, each with one replica; by default one.
      engines: Which of ipyparallel's launchers starts them, such as `"ssh"`, `"slurm"` or
        `"mpi"`; by default they are processes of this machine.
      parameter_servers: The number of processes that hold variables; None for workers that
        train together.

    Returns:
      The cluster: `run`, `interrupt`, `restart`, `stop`; with parameter servers `resolver`,
      `client`, `kill`, `stop`. It is a context manager, and ends with the program at the latest.

    Raises:
      ArgumentTypeError: An argument has another type.
      ArgumentValueError: A number is less than 1, or more than 4,096.
      OptionError: `devices` or `engines` is passed together with `parameter_servers`.
      MissingExtraError: ipyparallel, or Dask, is not installed.
      ClusterError: The processes did not start in time.

    Example:
      >>> import distlab as dl
      >>> with dl.launch(workers=2, devices=4) as cluster:
      ...     cluster.run(abs, -3)
      [3, 3]
    """
    _require_count("workers", workers)
    if parameter_servers is not None:
        return _with_servers(workers, devices, engines, parameter_servers)
    if devices is not None:
        _require_count("devices", devices)
    if not isinstance(engines, str | None):
        raise ArgumentTypeError(
            f"engines must be the name of one of ipyparallel's launchers, got {shown(engines)}. "
            "Leave it out for processes of this machine."
        )
    if find_spec("ipyparallel") is None:
        raise MissingExtraError(
            "distlab.launch starts the workers with ipyparallel, which is not installed. Run: pip "
            "install 'distlab[cluster]'. Programs need no notebook: distlab launch train.py."
        )
    from distlab.integrations.ipyparallel.cluster import Cluster

    return Cluster(workers, devices, engines)


def _with_servers(
    workers: int, devices: int | None, engines: str | None, parameter_servers: int
) -> ParameterServerCluster:
    _require_count("parameter_servers", parameter_servers)
    if devices is not None or engines is not None:
        raise OptionError(
            "Each worker of a cluster with parameter_servers is a process of this machine with one "
            "device, so devices and engines have no meaning for it. Leave them out; other machines "
            "take part by a Dask cluster: ParameterServerStrategy(client)."
        )
    if find_spec("distributed") is None:
        raise MissingExtraError(
            "distlab.launch starts parameter servers with Dask, which is not installed. Run: pip "
            "install 'distlab[cluster]'."
        )
    from distlab.integrations.dask.cluster import ParameterServerCluster

    return ParameterServerCluster(workers, parameter_servers)


def _require_count(name: str, value: Any) -> None:
    if not is_count(value):
        raise ArgumentTypeError(
            f"{name} must be a whole number of at least 1, got {shown(value)}. Write for example "
            f"{name}=2."
        )
    if value < 1:
        raise ArgumentValueError(f"{name} must be at least 1, got {value}. Write {name}=2.")
    if value > MOST:
        raise ArgumentValueError(
            f"{name} must be at most {MOST}, got {shown(value)}. Write for example {name}=2."
        )
