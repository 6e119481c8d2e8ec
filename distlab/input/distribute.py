"""Makes distributed datasets from datasets and from dataset functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from distlab.data import AutoShardPolicy, Dataset, as_dataset, auto_shard
from distlab.data.sharding.auto_shard import effective_policy, warn_of_reading_all
from distlab.data.sharding.worker_batches import divided, global_batch_size
from distlab.errors import (
    ArgumentTypeError,
    OutOfRangeError,
    StructureError,
    UnsupportedError,
)
from distlab.input.batches import Batches, GlobalBatches, PerReplicaBatches
from distlab.input.context import InputContext, InputHost
from distlab.input.dataset import DistributedDataset
from distlab.input.iterator import DistributedIterator
from distlab.input.options import InputOptions, InputReplicationMode, checked_options
from distlab.input.workers import agreed_batches
from distlab.processes import group
from distlab.processes.group import ProcessGroup


def distribute_dataset(
    strategy: InputHost, dataset: Any, options: InputOptions | None
) -> DistributedDataset:
    """Divides global batches. See `Strategy.experimental_distribute_dataset`."""
    if isinstance(dataset, DistributedDataset | DistributedIterator):
        raise StructureError(
            f"experimental_distribute_dataset needs a dataset of global batches, got a "
            f"{type(dataset).__name__}, which is divided over the replicas already. Iterate over "
            "it, or pass the dataset that it was made from."
        )
    options = checked_options(options)
    if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        raise UnsupportedError(
            "InputReplicationMode.PER_REPLICA calls a function for each replica, so it is for "
            "distribute_datasets_from_function only. Call that, or leave the mode out."
        )
    context, replicas = strategy.input_context, len(strategy.mesh.local_replicas)

    def steps(of: Dataset) -> Batches:
        return steps_of(of, context, replicas)

    processes = _processes_of(context)
    if processes is None:
        return DistributedDataset(steps(as_dataset(dataset)), strategy, options, _name_of(dataset))

    def whole() -> Dataset:
        made = as_dataset(dataset)
        if effective_policy(made) is AutoShardPolicy.DATA:
            warn_of_reading_all(made, processes.count)
        return made

    agreed = agreed_batches(processes, replicas, whole, steps, global_batches=True)
    return DistributedDataset(agreed, strategy, options, _name_of(dataset))


def distribute_from_function(
    strategy: InputHost,
    dataset_fn: Callable[[InputContext], Any],
    options: InputOptions | None,
) -> DistributedDataset:
    """Distributes per-replica batches. See `Strategy.distribute_datasets_from_function`."""
    options = checked_options(options)
    if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        if not strategy.reads_per_replica:
            raise UnsupportedError(
                "InputReplicationMode.PER_REPLICA is for MirroredStrategy, as in TensorFlow, and "
                f"this is a {type(strategy).__name__}. Leave the mode out: the replicas then take "
                "batches of one dataset in turn."
            )
        replicas = strategy.num_replicas_in_sync
        local = strategy.mesh.local_replicas
        contexts = [InputContext(replicas, replica, replicas) for replica in local]
        datasets = [
            made_by("dataset_fn", call_for_input("dataset_fn", dataset_fn, context))
            for context in contexts
        ]
        steps: Batches = replica_steps(datasets, len(local))
        return DistributedDataset(steps, strategy, options, _name_of(datasets[0]))
    steps, name = steps_from_function("dataset_fn", dataset_fn, strategy)
    return DistributedDataset(steps, strategy, options, name)


def _name_of(dataset: Any) -> str:
    """Returns the name that a dataset's options give it, else an empty text."""
    return (dataset.options().dataset_name or "") if isinstance(dataset, Dataset) else ""


def steps_from_function(
    name: str,
    function: Callable[[InputContext], Any],
    strategy: InputHost,
    *,
    fills: bool | None = None,
) -> tuple[Batches, str]:
    """Returns the steps of a dataset of per-replica batches made by a function, and its name."""
    context, replicas = strategy.input_context, len(strategy.mesh.local_replicas)
    processes = _processes_of(context)

    names: list[str] = []

    def made() -> Any:
        dataset = made_by(name, call_for_input(name, function, context))
        names.append(_name_of(dataset))
        return dataset

    if processes is None:
        return replica_steps([made()], replicas, fills=fills), names[0]
    steps = agreed_batches(
        processes,
        replicas,
        lambda: as_dataset(made()),
        lambda dataset: PerReplicaBatches([dataset], replicas, fills=True),
        global_batches=False,
    )
    return steps, names[0]


def _processes_of(context: InputContext) -> ProcessGroup | None:
    """Returns the processes that read the input together; None where one reads all of it."""
    return group.current() if context.num_input_pipelines > 1 else None


def steps_of(dataset: Dataset, context: InputContext, replicas: int) -> Batches:
    """Returns the steps of a dataset of global batches.

    Sharded by data, each is divided evenly over all replicas. Else it is cut into per-replica
    batches that replicas take in turn: as in TensorFlow, a partial one fills the first replicas.
    """
    policy = effective_policy(dataset)
    workers, worker = context.num_input_pipelines, context.input_pipeline_id
    everywhere = workers * replicas
    whole = GlobalBatches(dataset, everywhere, workers=workers, worker=worker)
    if workers > 1 and policy is AutoShardPolicy.DATA:
        return whole
    if workers == 1 and policy is not AutoShardPolicy.HINT:
        by_data = policy is AutoShardPolicy.DATA or global_batch_size(dataset.plan) is None
        if by_data or everywhere == 1:
            return whole
        parts = divided(dataset, 1, 0, replicas)
    else:
        if everywhere > 1:
            dataset = divided(dataset, workers, worker, replicas)
        parts = auto_shard(dataset, workers, worker)
    return PerReplicaBatches([parts], replicas, local_spec=lambda: whole.local_spec, fills=True)


def replica_steps(
    datasets: list[Any], replicas: int, *, fills: bool | None = None
) -> PerReplicaBatches:
    """Returns the steps of datasets of per-replica batches."""
    if fills is None and (
        replicas == 1 or not all(isinstance(dataset, Dataset) for dataset in datasets)
    ):
        fills = True  # the specs of other iterables are unknown, and must not be read
    return PerReplicaBatches([as_dataset(each) for each in datasets], replicas, fills=fills)


def call_for_input(
    name: str, function: Callable[[InputContext], Any], context: InputContext
) -> Any:
    """Calls a user's dataset function."""
    if not callable(function):
        raise ArgumentTypeError(
            f"{name} must be a function that accepts an InputContext and returns a dataset, got "
            f"{type(function).__name__}. For a dataset use experimental_distribute_dataset."
        )
    return function(context)


def made_by(name: str, result: Any) -> Any:
    """Returns the iterable that a user's dataset function made."""
    if hasattr(result, "__iter__"):
        return result
    if callable(result):
        return _Calls(result)
    raise ArgumentTypeError(
        f"{name} must return a dataset, or a function that returns one replica's next element, got "
        f"{type(result).__name__}. Return the dataset itself."
    )


class _Calls:
    """The results of calling a function, until it says that there are no more."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                element = self._function()
            except (StopIteration, OutOfRangeError):
                return
            yield element
