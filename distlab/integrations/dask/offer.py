"""Clusters of processes for `ParameterServerStrategy` and `Server`."""

from __future__ import annotations

import functools
import threading
from importlib.util import find_spec
from typing import Any

from distlab.cluster import server
from distlab.cluster.spec import ClusterSpec
from distlab.errors import MissingExtraError
from distlab.integrations.dask.resolver import DaskClusterResolver, is_dask_client
from distlab.strategies import remote_tasks
from distlab.strategies.remote_tasks import CoordinatedTasks


def offer(module: str) -> None:
    """Lets `ParameterServerStrategy` and `Server` take part in clusters of processes."""
    remote_tasks.connectors.append(functools.partial(_connected, module))
    server.serving.append(_serve)


def _connected(module: str, cluster: Any) -> CoordinatedTasks | None:
    if is_dask_client(cluster):
        cluster = DaskClusterResolver(cluster)
    if isinstance(cluster, DaskClusterResolver):
        from distlab.integrations.dask.tasks import of_client

        return of_client(cluster.client, cluster.workers, cluster.parameter_servers, module)
    if isinstance(cluster, ClusterSpec):
        _require_dask("ParameterServerStrategy reaches tasks in other processes")
        from distlab.integrations.dask.tasks import of_cluster

        return of_cluster(cluster, module)
    return None


def _serve(served: server.Server, stopped: threading.Event) -> None:
    _require_dask("A Server serves other processes")
    from distlab.integrations.dask.task import serve

    serve(served, stopped)


def _require_dask(what: str) -> None:
    if find_spec("distributed") is None:
        raise MissingExtraError(
            f"{what} with Dask, which is not installed. Run: pip install 'distlab[cluster]'."
        )
