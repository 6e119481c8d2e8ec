"""Arguments of the dataset verbs that take numbers and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from distlab.data import Dataset
from tests.misuse.table import row
from tests.misuse.world import World

_EIGHT = Dataset.range(8)
_ROWS = Dataset.from_tensor_slices([1, 2]).map(lambda n: np.ones(n, np.float32))


def _first(dataset: Any) -> object:
    """Reads one element."""
    return next(iter(dataset), None)


@row("Dataset.batch.batch_size")
def _(w: World, v: Any) -> object:
    return _EIGHT.batch(v)


@row("Dataset.batch.drop_remainder", "true")
def _(w: World, v: Any) -> object:
    return _EIGHT.batch(2, drop_remainder=v)


@row("Dataset.rebatch.batch_size", "list")
def _(w: World, v: Any) -> object:
    return _EIGHT.batch(4).rebatch(v)


@row("Dataset.padded_batch.batch_size")
def _(w: World, v: Any) -> object:
    return _ROWS.padded_batch(v)


@row(
    "Dataset.padded_batch.padded_shapes",
    "none negative",
    tells="true generator empty_tuple variable variable_of_other dataset",
)
def _(w: World, v: Any) -> object:
    return _first(_ROWS.padded_batch(2, v))


@row("Dataset.padded_batch.padding_values", "none negative fraction nan true scalar_array")
def _(w: World, v: Any) -> object:
    return _first(_ROWS.padded_batch(2, padding_values=v))


@row("Dataset.ragged_batch.batch_size")
def _(w: World, v: Any) -> object:
    return _ROWS.ragged_batch(v)


@row("Dataset.window.size")
def _(w: World, v: Any) -> object:
    return _EIGHT.window(v)


@row("Dataset.window.shift", "none")
def _(w: World, v: Any) -> object:
    return _EIGHT.window(2, v)


@row(
    "Dataset.bucket_by_sequence_length.bucket_boundaries",
    "list",
    tells="empty_list empty_tuple texts",
)
def _(w: World, v: Any) -> object:
    sizes = [2] * 3
    return _first(_ROWS.bucket_by_sequence_length(len, v, sizes))


@row("Dataset.bucket_by_sequence_length.bucket_batch_sizes", "list")
def _(w: World, v: Any) -> object:
    return _first(_ROWS.bucket_by_sequence_length(len, [2], v))


@row("Dataset.shuffle.buffer_size")
def _(w: World, v: Any) -> object:
    return _EIGHT.shuffle(v)


@row("Dataset.shuffle.seed", "none negative")
def _(w: World, v: Any) -> object:
    return _EIGHT.shuffle(4, seed=v)


@row("Dataset.shuffle.reshuffle_each_iteration", "none true")
def _(w: World, v: Any) -> object:
    return _EIGHT.shuffle(4, reshuffle_each_iteration=v)


@row("Dataset.repeat.count", "none negative")
def _(w: World, v: Any) -> object:
    return _EIGHT.repeat(v)


@row("Dataset.take.count", "negative")
def _(w: World, v: Any) -> object:
    return _EIGHT.take(v)


@row("Dataset.skip.count", "negative")
def _(w: World, v: Any) -> object:
    return _EIGHT.skip(v)


@row("Dataset.enumerate.start", "negative")
def _(w: World, v: Any) -> object:
    return _EIGHT.enumerate(v)


@row("Dataset.shard.num_shards")
def _(w: World, v: Any) -> object:
    return _EIGHT.shard(v, 0)


@row("Dataset.shard.index")
def _(w: World, v: Any) -> object:
    return _EIGHT.shard(2, v)


@row("Dataset.prefetch.buffer_size", "none negative")
def _(w: World, v: Any) -> object:
    return _EIGHT.prefetch(v)


@row("Dataset.ignore_errors.log_warning", "true")
def _(w: World, v: Any) -> object:
    return _EIGHT.ignore_errors(v)


@row("Dataset.cache.filename", "text bytes texts")
def _(w: World, v: Any) -> object:
    return _EIGHT.cache(v)


@row("Dataset.snapshot.path", "text bytes texts")
def _(w: World, v: Any) -> object:
    return _EIGHT.snapshot(v)


@row("Dataset.concatenate.dataset", "dataset")
def _(w: World, v: Any) -> object:
    return _EIGHT.concatenate(v)
