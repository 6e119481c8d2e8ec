"""Arguments of the dataset verbs that take a function."""

from __future__ import annotations

from typing import Any

import numpy as np

from distlab.data import Dataset
from tests.misuse.table import row
from tests.misuse.world import World

_EIGHT = Dataset.range(8)


def _first(dataset: Any) -> object:
    """Reads one element."""
    return next(iter(dataset), None)


@row("Dataset.group_by_window.key_func", "type", users="function")
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.group_by_window(v, lambda _, window: window.batch(2), 2))


@row("Dataset.group_by_window.window_size", "none")
def _(w: World, v: Any) -> object:
    call = _EIGHT.group_by_window
    if v is None:
        return call(lambda x: x % 2, lambda _, window: window.batch(2), 2)
    return call(lambda x: x % 2, lambda _, window: window.batch(2), v)


@row("Dataset.map.map_func", "type", users="function")
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.map(v))


@row("Dataset.map.num_parallel_calls", "none negative")
def _(w: World, v: Any) -> object:
    return _EIGHT.map(lambda x: x, num_parallel_calls=v)


@row(
    "Dataset.map.returned",
    "text bytes negative fraction nan complex true date list empty_list dict texts scalar_array "
    "variable variable_of_other empty_tuple dataset",
)
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.map(lambda _: v))


@row("Dataset.filter.predicate", tells="type", users="function")
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.filter(v))


@row("Dataset.filter.returned", "true")
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.filter(lambda _: v))


@row("Dataset.take_while.predicate", tells="type", users="function")
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.take_while(v))


@row("Dataset.flat_map.map_func", tells="type", users="function")
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.flat_map(v))


@row("Dataset.flat_map.returned", "dataset")
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.flat_map(lambda _: v))


@row("Dataset.interleave.cycle_length", "none negative")
def _(w: World, v: Any) -> object:
    return _EIGHT.interleave(lambda _: Dataset.range(2), cycle_length=v)


@row("Dataset.interleave.block_length", "none")
def _(w: World, v: Any) -> object:
    return _EIGHT.interleave(lambda _: Dataset.range(2), block_length=v)


@row("Dataset.scan.scan_func", users="type function")
def _(w: World, v: Any) -> object:
    return _first(_EIGHT.scan(np.int64(0), v))


@row("Dataset.reduce.reduce_func", users="type function")
def _(w: World, v: Any) -> object:
    return _EIGHT.reduce(np.int64(0), v)


@row("Dataset.rejection_resample.target_dist")
def _(w: World, v: Any) -> object:
    return _EIGHT.rejection_resample(lambda x: x % 2, v)


@row("Dataset.apply.transformation_func", users="type function")
def _(w: World, v: Any) -> object:
    return _EIGHT.apply(v)
