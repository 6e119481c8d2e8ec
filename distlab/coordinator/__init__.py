"""`tf.distribute.coordinator`: functions handed to workers that do not wait for one another.

coordinator = ClusterCoordinator(strategy)          # a ParameterServerStrategy
batches = iter(coordinator.create_per_worker_dataset(make_dataset))
for _ in range(steps):
loss = coordinator.schedule(step, args=(batches,))
coordinator.join()
print(loss.fetch())
"""

from distlab.coordinator.cluster_coordinator import ClusterCoordinator
from distlab.coordinator.per_worker import PerWorkerValue
from distlab.coordinator.remote_value import RemoteValue

__all__ = ["ClusterCoordinator", "PerWorkerValue", "RemoteValue"]
