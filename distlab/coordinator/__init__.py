"""`tf.distribute.coordinator`: functions scheduled on workers that do not wait for one another.

Example:
    strategy = ParameterServerStrategy(cluster_resolver)
    coordinator = ClusterCoordinator(strategy)
    batches = iter(coordinator.create_per_worker_dataset(make_dataset))
    for _ in range(steps):
        loss = coordinator.schedule(step, args=(batches,))
    coordinator.join()
    print(loss.fetch())
"""

from distlab.coordinator.cluster_coordinator import (
    ClusterCoordinator,
    experimental_get_current_worker_index,
)
from distlab.coordinator.per_worker import PerWorkerValue
from distlab.coordinator.remote_value import RemoteValue

PerWorkerValues = PerWorkerValue
"""`PerWorkerValue`, under its name in `tf.distribute.experimental.coordinator`."""

__all__ = [
    "ClusterCoordinator",
    "PerWorkerValue",
    "PerWorkerValues",
    "RemoteValue",
    "experimental_get_current_worker_index",
]
