"""What `ParameterServerStrategy` may be made of, beside a cluster in this process."""

from __future__ import annotations

import functools
from typing import Any

from distlab.integrations.dask.resolver import DaskClusterResolver, is_dask_client
from distlab.strategies import remote_tasks
from distlab.strategies.remote_tasks import CoordinatedTasks


def offer(module: str) -> None:
    """Lets a `ParameterServerStrategy` be made of a Dask client, or of a resolver with one.

    Args:
      module: What a worker imports, so that it knows the libraries that this process knows.
    """
    remote_tasks.connectors.append(functools.partial(_connected, module))


def _connected(module: str, cluster: Any) -> CoordinatedTasks | None:
    if is_dask_client(cluster):
        cluster = DaskClusterResolver(cluster)
    if not isinstance(cluster, DaskClusterResolver):
        return None
    from distlab.integrations.dask.tasks import connect

    return connect(cluster.client, cluster.workers, cluster.parameter_servers, module)
