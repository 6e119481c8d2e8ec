"""Arguments of distributing datasets."""

from __future__ import annotations

from typing import Any

import distlab as dl
from distlab.data import Dataset
from tests.misuse.table import row
from tests.misuse.world import World

_EIGHT = Dataset.range(8)


@row("distribute_dataset.dataset", "list empty_list uneven_list set generator", tells="dataset")
def _(w: World, v: Any) -> object:
    return w.strategy.experimental_distribute_dataset(v)


@row("distribute_dataset.options", "none")
def _(w: World, v: Any) -> object:
    return w.strategy.experimental_distribute_dataset(_EIGHT.batch(4), v)


@row("distribute_datasets_from_function.dataset_fn", tells="function", users="type")
def _(w: World, v: Any) -> object:
    return w.strategy.distribute_datasets_from_function(v)


@row(
    "distribute_datasets_from_function.returned",
    "function type list empty_list uneven_list set generator dataset",
)
def _(w: World, v: Any) -> object:
    return w.strategy.distribute_datasets_from_function(lambda _: v)


@row("distribute_datasets_from_function.options", "none")
def _(w: World, v: Any) -> object:
    return w.strategy.distribute_datasets_from_function(lambda _: _EIGHT.batch(2), v)


@row("make_input_fn_iterator.replication_mode")
def _(w: World, v: Any) -> object:
    return w.strategy.make_input_fn_iterator(lambda _: _EIGHT.batch(2), v)


@row("InputOptions.experimental_replication_mode")
def _(w: World, v: Any) -> object:
    return dl.InputOptions(experimental_replication_mode=v)


@row("InputOptions.experimental_fetch_to_device", "none true")
def _(w: World, v: Any) -> object:
    return dl.InputOptions(experimental_fetch_to_device=v)


@row("InputOptions.experimental_per_replica_buffer_size", "big huge")
def _(w: World, v: Any) -> object:
    return dl.InputOptions(experimental_per_replica_buffer_size=v)


@row("InputContext.get_per_replica_batch_size", "big huge")
def _(w: World, v: Any) -> object:
    return dl.InputContext(num_replicas_in_sync=4).get_per_replica_batch_size(v)


@row("DistributedIterator.restore.state")
def _(w: World, v: Any) -> object:
    iter(w.strategy.experimental_distribute_dataset(w.dataset)).restore(v)
    return None


@row("DistributedDataset.reduce.reduce_func", tells="type", users="function")
def _(w: World, v: Any) -> object:
    return w.strategy.experimental_distribute_dataset(w.dataset).reduce(0, v)
