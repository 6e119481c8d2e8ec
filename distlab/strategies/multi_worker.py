"""Synchronous training on several machines; in this version on a cluster of one."""

from __future__ import annotations

from typing import Any, final

from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.tf_config import TFConfigClusterResolver
from distlab.collectives.options import CommunicationOptions
from distlab.devices import selection
from distlab.errors import ArgumentTypeError, ClusterSpecError, UnsupportedError
from distlab.step.place import Place
from distlab.strategies.abstract import Strategy


@final
class MultiWorkerMirroredStrategy(Strategy):
    """One worker's replicas (`tf.distribute.MultiWorkerMirroredStrategy`).

    A program written for several workers runs on one: without a cluster, or
    with a cluster of one worker. As in TensorFlow a worker uses all its
    accelerators, or one CPU device when it has none.

    Args:
      cluster_resolver: describes the cluster; by default the environment
        variable `TF_CONFIG` does.
      communication_options: hints that change no value.

    Raises:
      ArgumentTypeError: it is no resolver.
      ClusterSpecError: the cluster has workers and does not say which of them
        this process is.
      UnsupportedError: the cluster has more than one worker.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
    ) -> None:
        del communication_options
        resolver = TFConfigClusterResolver() if cluster_resolver is None else cluster_resolver
        if not isinstance(resolver, ClusterResolver):
            raise ArgumentTypeError(
                "cluster_resolver must be a ClusterResolver or None, got a "
                f"{type(resolver).__name__}. Leave it out to read TF_CONFIG."
            )
        _require_one_worker(resolver)
        self._resolver = resolver
        local = selection.available()
        devices = local[:1] if local[0].platform == "cpu" else local
        super().__init__(Place.on(devices, type(self).__name__))

    @property
    def cluster_resolver(self) -> Any:
        """What describes the cluster."""
        return self._resolver


def _require_one_worker(resolver: ClusterResolver) -> None:
    cluster = resolver.cluster_spec().as_dict()
    if not cluster:
        return
    if resolver.task_type is None or resolver.task_id is None:
        raise ClusterSpecError(
            "A cluster must say which of its tasks this process is: task_type and task_id are "
            f"{resolver.task_type!r} and {resolver.task_id!r}. Set TF_CONFIG's task, or give the "
            "resolver task_type='worker' and task_id=0."
        )
    tasks = sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
    if tasks > 1:
        raise UnsupportedError(
            f"This version runs on one worker, and the cluster has {tasks}. Use one process with "
            "MirroredStrategy on all its devices."
        )
