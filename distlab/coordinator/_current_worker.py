"""The number of the calling thread's worker, for code that a coordinator runs."""

from __future__ import annotations

from distlab.errors import ContextError
from distlab.strategies.workers import current_worker


def experimental_get_current_worker_index() -> int:
    """Returns the number of the worker that runs the calling function, from 0.

    A scheduled function or a dataset function calls it to shard data by worker.

    Raises:
      ContextError: The calling thread is not a worker's.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2201"], "ps": ["b:2201"]})
      >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
      >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
      >>> strategy = dl.ParameterServerStrategy(resolver)
      >>> coordinator = dl.coordinator.ClusterCoordinator(strategy)
      >>> coordinator.schedule(dl.coordinator.experimental_get_current_worker_index).fetch()
      0
    """
    worker = current_worker()
    if worker is None:
        raise ContextError(
            "experimental_get_current_worker_index must be called by a function that a worker "
            "runs, and this thread is no worker's. Call it inside a function that "
            "ClusterCoordinator.schedule runs."
        )
    return worker
