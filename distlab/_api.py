"""All public names but the widgets; imported when the first one is asked for."""

from __future__ import annotations

# ruff: noqa: F401
from distlab import (
    cluster_resolver,
    coordinator,
    data,
    errors,
    events,
    experimental,
    insight,
    tpu,
)
from distlab._background import background
from distlab._context import (
    experimental_set_strategy,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from distlab._devices import use_cpu_devices
from distlab._loop_control import controlled
from distlab._modes import RunOptions, functions_run_eagerly, run_functions_eagerly
from distlab._reduce_op import ReduceOp
from distlab._replica_context import ReplicaContext
from distlab._values import DistributedValues, Mirrored, PerReplica
from distlab._variable import Variable
from distlab._variable_kinds import VariableAggregation, VariableSynchronization
from distlab.cluster.server import Server
from distlab.cluster.spec import ClusterSpec
from distlab.cross_device_ops import (
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReductionToOneDevice,
)
from distlab.input.context import InputContext
from distlab.input.dataset import DistributedDataset
from distlab.input.iterator import DistributedIterator
from distlab.input.options import InputOptions, InputReplicationMode
from distlab.recording import Run, record
from distlab.strategies.abstract import Strategy
from distlab.strategies.extended import StrategyExtended
from distlab.strategies.mirrored import MirroredStrategy
from distlab.strategies.multi_worker import MultiWorkerMirroredStrategy
from distlab.strategies.one_device import OneDeviceStrategy
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.strategies.tpu import TPUStrategy
