"""Parameter servers in this process, for tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import distlab as dl

_numbers = itertools.count()


def strategy_of(
    servers: int, partitioner: Callable[..., Any] | None = None, *, workers: int = 1
) -> dl.ParameterServerStrategy:
    """Returns a strategy of a new cluster, whose addresses are free again.

    Args:
      servers: The number of parameter servers.
      partitioner: Divides variables.
      workers: The number of workers.
    """
    number = next(_numbers)
    spec = dl.ClusterSpec(
        {
            job: [f"{job}-{number}:{task}" for task in range(tasks)]
            for job, tasks in (("worker", workers), ("ps", servers))
        }
    )
    running = [
        dl.Server(spec, job_name=job, task_index=task)
        for job in spec.jobs
        for task in spec.task_indices(job)
    ]
    try:
        resolver = dl.cluster_resolver.SimpleClusterResolver(spec)
        return dl.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
    finally:
        for server in running:
            server.stop()
