"""What TensorFlow keeps under `tf.distribute.experimental`."""

from distlab import coordinator
from distlab._communication import CommunicationImplementation, CommunicationOptions
from distlab._communication import CommunicationImplementation as CollectiveCommunication
from distlab._communication import collective_hints as CollectiveHints
from distlab._value_context import ValueContext
from distlab.strategies.central_storage import CentralStorageStrategy
from distlab.strategies.multi_worker import MultiWorkerMirroredStrategy
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.strategies.tpu import TPUStrategy

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "TPUStrategy",
    "ValueContext",
    "coordinator",
]
