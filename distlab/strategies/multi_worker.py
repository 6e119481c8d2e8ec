"""Synchronous training on several machines; in this version on a cluster of one worker."""

from __future__ import annotations

from typing import Any, final

from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.tf_config import TFConfigClusterResolver
from distlab.collectives.options import CommunicationOptions
from distlab.devices import selection
from distlab.errors import ArgumentTypeError, ClusterSpecError, UnsupportedError
from distlab.step.place import Place
from distlab.strategies.abstract import Strategy
from distlab.text.shown import shown


@final
class MultiWorkerMirroredStrategy(Strategy):
    """One worker's replicas (`tf.distribute.MultiWorkerMirroredStrategy`).

    A program written for several workers runs on one: without a cluster, or
    with a cluster of one worker. As in TensorFlow a worker uses all its
    accelerators, or one CPU device when it has none.

    Args:
      cluster_resolver: The resolver of the cluster; by default the environment
        variable `TF_CONFIG` describes it.
      communication_options: Hints that change no value.

    Raises:
      ArgumentTypeError: `cluster_resolver` is not a `ClusterResolver`, or
        `communication_options` not `CommunicationOptions`.
      ClusterSpecError: The cluster does not name this process's task.
      UnsupportedError: The cluster has more than one worker.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MultiWorkerMirroredStrategy()
      >>> strategy
      MultiWorkerMirroredStrategy(CPU:0)
      >>> strategy.cluster_resolver.cluster_spec()
      ClusterSpec({})
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
    ) -> None:
        if not isinstance(communication_options, CommunicationOptions | None):
            raise ArgumentTypeError(
                "communication_options must be CommunicationOptions or None, got "
                f"{shown(communication_options)}. Leave it out: XLA chooses by itself."
            )
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
        """The resolver of the cluster."""
        return self._resolver


def _require_one_worker(resolver: ClusterResolver) -> None:
    cluster = resolver.cluster_spec().as_dict()
    if not cluster:
        return
    if resolver.task_type is None or resolver.task_id is None:
        raise ClusterSpecError(
            "A cluster must name this process's task: task_type and task_id are "
            f"{resolver.task_type!r} and {resolver.task_id!r}. Set TF_CONFIG's task, or pass "
            "task_type='worker' and task_id=0 to the resolver."
        )
    tasks = sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
    if tasks > 1:
        raise UnsupportedError(
            f"This version runs on one worker, and the cluster has {tasks}. Use one process with "
            "MirroredStrategy on all its devices."
        )
