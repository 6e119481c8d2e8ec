"""distlab: `tf.distribute.Strategy` re-made on JAX, that shows what it does.

    import distlab as dl
    dl.use_cpu_devices(8)
    strategy = dl.MirroredStrategy()
    with strategy.scope():
        w = dl.Variable(...)
    for x, y in strategy.experimental_distribute_dataset(dataset):
        losses = strategy.run(step, args=(x, y))
        loss = strategy.reduce("MEAN", losses, axis=None)

Every placement, sharding and reduction is an event: `dl.record` keeps them,
`dl.watch()` shows them in a notebook, and `distlab dashboard` serves them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from distlab.context import scopes
from distlab.events import sink

if TYPE_CHECKING:
    from distlab import (
        advice,
        cluster_resolver,
        coordinator,
        data,
        errors,
        events,
        experimental,
        tpu,
        widgets,
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
    from distlab.context.replica_context import ReplicaContext
    from distlab.context.scopes import (
        experimental_set_strategy,
        get_replica_context,
        get_strategy,
        has_strategy,
        in_cross_replica_context,
    )
    from distlab.control.background import background
    from distlab.control.loops import controlled
    from distlab.devices.selection import use_cpu_devices
    from distlab.input.context import InputContext
    from distlab.input.dataset import DistributedDataset
    from distlab.input.iterator import DistributedIterator
    from distlab.input.options import InputOptions, InputReplicationMode
    from distlab.recording import Run, record
    from distlab.strategies.abstract import Strategy
    from distlab.strategies.default import DefaultStrategy
    from distlab.strategies.extended import StrategyExtended
    from distlab.strategies.mirrored import MirroredStrategy
    from distlab.strategies.multi_worker import MultiWorkerMirroredStrategy
    from distlab.strategies.one_device import OneDeviceStrategy
    from distlab.strategies.parameter_server import ParameterServerStrategy
    from distlab.strategies.tpu import TPUStrategy
    from distlab.values.distributed import DistributedValues, Mirrored, PerReplica
    from distlab.values.reduce_op import ReduceOp
    from distlab.variables.kinds import VariableAggregation, VariableSynchronization
    from distlab.variables.variable import Variable
    from distlab.widgets import watch

__version__ = "0.1.0"

__all__ = [
    "ClusterSpec",
    "CrossDeviceOps",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "HierarchicalCopyAllReduce",
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
    "Strategy",
    "StrategyExtended",
    "TPUStrategy",
    "Variable",
    "VariableAggregation",
    "VariableSynchronization",
    "advice",
    "background",
    "cluster_resolver",
    "controlled",
    "coordinator",
    "data",
    "errors",
    "events",
    "experimental",
    "experimental_set_strategy",
    "functions_run_eagerly",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
    "record",
    "run_functions_eagerly",
    "tpu",
    "use_cpu_devices",
    "watch",
    "widgets",
]


def _default_strategy() -> DefaultStrategy:
    from distlab.strategies.default import DefaultStrategy

    return DefaultStrategy()


def _default_recorder() -> sink.Recorder:
    from distlab.recording import make_default

    return make_default()


scopes.set_default(_default_strategy)
sink.set_default(_default_recorder)


def __getattr__(name: str) -> Any:
    """Loads JAX and distlab's parts when the first public name is asked for.

    The command's help must not wait for that, and the widgets need packages of
    their own.
    """
    if name not in __all__:
        raise AttributeError(f"module 'distlab' has no attribute {name!r}")
    if name in ("watch", "widgets"):
        widgets = import_module("distlab.widgets")
        return widgets if name == "widgets" else widgets.watch
    from distlab import _api

    value = globals()[name] = getattr(_api, name)
    return value


def load_ipython_extension(shell: Any) -> None:
    """Adds the cell magic `%%watch` to IPython, for `%load_ext distlab`."""
    from distlab.widgets._magic import register

    register(shell)


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
