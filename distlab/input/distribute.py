"""From a dataset, or a function that makes one, to a distributed dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distlab.data import INFINITE_CARDINALITY, AutoShardPolicy, Dataset, as_dataset, auto_shard
from distlab.data._auto_shard import effective_policy
from distlab.data._worker_batches import divided, global_batch_size
from distlab.errors import ArgumentTypeError, UnsupportedError
from distlab.input._replica_batches import ReplicaBatches
from distlab.input._step import Steps
from distlab.input._whole_batches import WholeBatches
from distlab.input.context import InputContext
from distlab.input.dataset import DistributedDataset
from distlab.input.host import InputHost
from distlab.input.options import InputOptions, InputReplicationMode, checked_options
from distlab.input.spec import varying_spec


def distribute_dataset(
    strategy: InputHost, dataset: Any, options: InputOptions | None
) -> DistributedDataset:
    """Divides global batches. See `Strategy.experimental_distribute_dataset`."""
    options = checked_options(options)
    if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        raise UnsupportedError(
            "InputReplicationMode.PER_REPLICA calls a function for each replica, so it is for "
            "distribute_datasets_from_function only. Use that, or leave the mode out."
        )
    steps = steps_of(
        as_dataset(dataset),
        strategy.input_context,
        strategy.mesh.replicas,
        looked_into=isinstance(dataset, Dataset),
    )
    return DistributedDataset(steps, strategy, options)


def distribute_from_function(
    strategy: InputHost,
    dataset_fn: Callable[[InputContext], Any],
    options: InputOptions | None,
) -> DistributedDataset:
    """Lets replicas take batches. See `Strategy.distribute_datasets_from_function`."""
    options = checked_options(options)
    if options.experimental_replication_mode is InputReplicationMode.PER_REPLICA:
        if not strategy.reads_per_replica:
            raise UnsupportedError(
                "InputReplicationMode.PER_REPLICA is for MirroredStrategy, as in TensorFlow, and "
                f"this is a {type(strategy).__name__}. Leave the mode out: the replicas then take "
                "turns with one dataset."
            )
        contexts = _one_for_each_replica(strategy)
    else:
        contexts = [strategy.input_context]
    datasets = [call_for_input("dataset_fn", dataset_fn, context) for context in contexts]
    return DistributedDataset(replica_steps(datasets, strategy.mesh.replicas), strategy, options)


def steps_of(dataset: Dataset, context: InputContext, replicas: int, *, looked_into: bool) -> Steps:
    """Returns the steps of a dataset of global batches.

    Global batches are divided as they are. When they are sharded over workers,
    or not by data, they are first cut into batches of single replicas, which
    replicas then take in turn: TensorFlow does so, and a partial batch then
    fills the first replicas instead of being divided evenly.

    Args:
      dataset: the global batches.
      context: which part of the input is meant.
      replicas: how many replicas this worker has.
      looked_into: whether finding out what elements are like has no side effects.

    Raises:
      NotBatchedError: elements have no batch dimension.
      InvalidArgumentError: the shard policy does not fit the dataset.
    """
    policy = effective_policy(dataset)
    workers, worker = context.num_input_pipelines, context.input_pipeline_id
    everywhere = workers * replicas
    whole = WholeBatches(dataset, everywhere, looked_into=looked_into)
    if workers == 1 and policy is not AutoShardPolicy.HINT:
        by_data = policy is AutoShardPolicy.DATA or global_batch_size(dataset.plan) is None
        if by_data or everywhere == 1:
            return whole
        parts = divided(dataset, 1, 0, replicas)
    else:
        if everywhere > 1:
            dataset = divided(dataset, workers, worker, replicas)
        parts = auto_shard(dataset, workers, worker)
    spec = whole.local_spec
    if workers > 1 and dataset.cardinality() != INFINITE_CARDINALITY:
        spec = varying_spec(spec)  # this worker may have no batch in another one's last steps
    return ReplicaBatches([parts], replicas, local_spec=spec, fills=True)


def replica_steps(
    datasets: list[Any], replicas: int, *, fills: bool | None = None
) -> ReplicaBatches:
    """Returns the steps of datasets whose elements are for single replicas.

    Args:
      datasets: one to take turns with, or one for each replica.
      replicas: how many replicas there are.
      fills: whether a last step is given for which some replicas have
        nothing. None: as TensorFlow, see `ReplicaBatches`.
    """
    if fills is None and (
        replicas == 1 or not all(isinstance(dataset, Dataset) for dataset in datasets)
    ):
        fills = True  # nothing is known, and must not be read, of other iterables
    return ReplicaBatches([as_dataset(each) for each in datasets], replicas, fills=fills)


def call_for_input(
    name: str, function: Callable[[InputContext], Any], context: InputContext
) -> Any:
    """Calls a user's function that makes input.

    Raises:
      ArgumentTypeError: it is no function.
    """
    if not callable(function):
        raise ArgumentTypeError(
            f"{name} must be a function that takes an InputContext and returns a dataset, got "
            f"{type(function).__name__}. For a dataset use experimental_distribute_dataset."
        )
    return function(context)


def _one_for_each_replica(strategy: InputHost) -> list[InputContext]:
    """Returns the contexts of datasets that are read by one replica each."""
    replicas = strategy.num_replicas_in_sync
    return [InputContext(replicas, replica, replicas) for replica in strategy.mesh.local_replicas]
