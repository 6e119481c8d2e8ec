"""All public names, listed once; imported when the first one is asked for.

`watch` and `widgets` need packages of their own, so `distlab` imports them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlab import (
    advice,
    cluster_resolver,
    coordinator,
    data,
    errors,
    estimator,
    events,
    experimental,
    flax,
    io,
    keras,
    loggers,
    metrics,
    nest,
    nn,
    tpu,
    train,
)
from distlab.cluster.server import Server
from distlab.cluster.spec import ClusterSpec
from distlab.collectives.cross_device_ops import (
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReductionToOneDevice,
)
from distlab.context.modes import RunOptions, functions_run_eagerly, run_functions_eagerly
from distlab.context.replica_context import ReplicaContext, get_replica_context
from distlab.context.scopes import has_strategy, in_cross_replica_context
from distlab.control.background import background
from distlab.control.loops import controlled
from distlab.devices.selection import use_cpu_devices
from distlab.exported import Exported, export, load_exported
from distlab.input.context import InputContext
from distlab.input.dataset import DistributedDataset
from distlab.input.iterator import DistributedIterator
from distlab.input.options import InputOptions, InputReplicationMode
from distlab.input.sharded import shard_batches
from distlab.integrations.dask.offer import offer as _offer_dask
from distlab.integrations.flax import offer as _offer_flax
from distlab.integrations.launch import launch
from distlab.integrations.orbax.backup import BackupAndRestore
from distlab.observing.compilations import compilations
from distlab.observing.observed import observe
from distlab.placement import placed
from distlab.programs.report import program
from distlab.recording import Run, record
from distlab.simulation.simulate import simulate
from distlab.step.scan import scan
from distlab.strategies.abstract import Strategy
from distlab.strategies.current import experimental_set_strategy, get_strategy
from distlab.strategies.extended import StrategyExtended
from distlab.strategies.mirrored import MirroredStrategy
from distlab.strategies.multi_worker import MultiWorkerMirroredStrategy
from distlab.strategies.one_device import OneDeviceStrategy
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.strategies.tpu import TPUStrategy
from distlab.training.controller import Controller
from distlab.training.standard import StandardEvaluator, StandardTrainer
from distlab.values.distributed import DistributedValues, Mirrored, PerReplica
from distlab.values.indexed_slices import IndexedSlices
from distlab.values.reduce_op import ReduceOp
from distlab.variables.creators import variable_creator_scope
from distlab.variables.gradients import value_and_grad
from distlab.variables.kinds import VariableAggregation, VariableSynchronization
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable

if TYPE_CHECKING:
    from distlab import widgets  # noqa: TC004 - `__all__` names it, and `distlab` imports it
    from distlab.widgets import watch  # noqa: TC004

_offer_dask(__name__)

__all__ = [
    "BackupAndRestore",
    "ClusterSpec",
    "Controller",
    "CrossDeviceOps",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "Exported",
    "HierarchicalCopyAllReduce",
    "IndexedSlices",
    "InputContext",
    "InputOptions",
    "InputReplicationMode",
    "Mirrored",
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "ParameterServerStrategy",
    "PerReplica",
    "ReduceOp",
    "ReductionToOneDevice",
    "ReplicaContext",
    "Run",
    "RunOptions",
    "Server",
    "ShardedVariable",
    "StandardEvaluator",
    "StandardTrainer",
    "Strategy",
    "StrategyExtended",
    "TPUStrategy",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "advice",
    "background",
    "cluster_resolver",
    "compilations",
    "controlled",
    "coordinator",
    "data",
    "errors",
    "estimator",
    "events",
    "experimental",
    "experimental_set_strategy",
    "export",
    "flax",
    "functions_run_eagerly",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
    "io",
    "keras",
    "launch",
    "load_exported",
    "loggers",
    "metrics",
    "nest",
    "nn",
    "observe",
    "placed",
    "program",
    "record",
    "run_functions_eagerly",
    "scan",
    "shard_batches",
    "simulate",
    "tpu",
    "train",
    "use_cpu_devices",
    "value_and_grad",
    "variable_creator_scope",
    "watch",
    "widgets",
]

_offer_flax()
