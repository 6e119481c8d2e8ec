"""`tf.distribute.experimental`: strategies, options and the coordinator under their former names.

Example:
  >>> import distlab as dl
  >>> strategy = dl.experimental.CentralStorageStrategy()
  >>> strategy.extended.parameter_devices, strategy.num_replicas_in_sync
  (('CPU:0',), 8)
"""

from distlab import coordinator
from distlab.context.communication import CommunicationImplementation, CommunicationOptions
from distlab.context.communication import CommunicationImplementation as CollectiveCommunication
from distlab.context.communication import collective_hints as CollectiveHints
from distlab.experimental import partitioners
from distlab.integrations.orbax.preemption import PreemptionCheckpointHandler, TerminationConfig
from distlab.processes.preemption import PreemptionWatcher
from distlab.strategies.central_storage import CentralStorageStrategy
from distlab.strategies.multi_worker import MultiWorkerMirroredStrategy
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.strategies.tpu import TPUStrategy
from distlab.values.value_context import ValueContext

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "PreemptionCheckpointHandler",
    "PreemptionWatcher",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
    "coordinator",
    "partitioners",
]
