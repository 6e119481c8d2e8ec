"""Arguments of variables."""

from __future__ import annotations

from typing import Any

import distlab as dl
from distlab.experimental import partitioners
from tests.misuse.table import row
from tests.misuse.world import World

_NUMBERS = (
    "negative fraction nan complex true list empty_list empty_tuple scalar_array "
    "variable variable_of_other"
)


@row("Variable.initial_value", f"{_NUMBERS} type function key")
def _(w: World, v: Any) -> object:
    with w.strategy.scope():
        return dl.Variable(v)


@row("Variable.name", "none text")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, name=v)


@row("Variable.aggregation")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, aggregation=v)


@row("Variable.synchronization")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, synchronization=v)


@row("Variable.dtype", "none type variable variable_of_other")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, dtype=v)


@row("Variable.trainable", "none true")
def _(w: World, v: Any) -> object:
    return dl.Variable(1.0, trainable=v)


@row(
    "Variable.assign.value",
    "list per_replica variable variable_of_other",
    tells="empty_list empty_tuple",
)
def _(w: World, v: Any) -> object:
    return w.weights.assign(v)


@row(
    "Variable.assign_add.delta",
    "list per_replica variable variable_of_other",
    tells="empty_list empty_tuple",
)
def _(w: World, v: Any) -> object:
    return w.weights.assign_add(v)


@row(
    "Variable.assign_sub.delta",
    "list per_replica variable variable_of_other",
    tells="empty_list empty_tuple",
)
def _(w: World, v: Any) -> object:
    return w.weights.assign_sub(v)


@row("VariableCopy.assign.value", "list variable variable_of_other", tells="empty_list empty_tuple")
def _(w: World, v: Any) -> object:
    return w.weights.values[0].assign(v)


@row("FixedShardsPartitioner.num_shards", "big huge")
def _(w: World, v: Any) -> object:
    return partitioners.FixedShardsPartitioner(v)((4, 2), "float32")


@row("MinSizePartitioner.min_shard_bytes", "big fraction")
def _(w: World, v: Any) -> object:
    return partitioners.MinSizePartitioner(v)((4, 2), "float32")


@row("MinSizePartitioner.max_shards", "big huge")
def _(w: World, v: Any) -> object:
    return partitioners.MinSizePartitioner(1, v)((4, 2), "float32")


@row("MaxSizePartitioner.max_shard_bytes", "big fraction")
def _(w: World, v: Any) -> object:
    return partitioners.MaxSizePartitioner(v)((4, 2), "float32")


@row("MaxSizePartitioner.max_shards", "none big huge")
def _(w: World, v: Any) -> object:
    return partitioners.MaxSizePartitioner(1, v)((4, 2), "float32")


@row("ShardedVariable.variables", tells="empty_list empty_tuple")
def _(w: World, v: Any) -> object:
    return dl.ShardedVariable(v)


@row(
    "ShardedVariable.assign.value",
    "list variable variable_of_other",
    tells="empty_list empty_tuple",
)
def _(w: World, v: Any) -> object:
    return dl.ShardedVariable([dl.Variable([1.0]), dl.Variable([2.0])]).assign(v)


@row("ShardedVariable.sparse_read.indices", "list", tells="empty_list empty_tuple")
def _(w: World, v: Any) -> object:
    return dl.ShardedVariable([dl.Variable([1.0, 2.0]), dl.Variable([2.0])]).sparse_read(v)
