"""Arguments of making datasets and their options."""

from __future__ import annotations

from typing import Any

import distlab as dl
from distlab.data import Dataset
from tests.misuse.table import row
from tests.misuse.world import World

_EIGHT = Dataset.range(8)


@row("Dataset.from_tensor_slices", "list empty_list texts variable variable_of_other")
def _(w: World, v: Any) -> object:
    return Dataset.from_tensor_slices(v)


@row(
    "Dataset.from_tensors",
    "text bytes negative fraction nan complex true date list empty_list empty_tuple dict texts "
    "scalar_array variable variable_of_other",
)
def _(w: World, v: Any) -> object:
    return Dataset.from_tensors(v)


@row("Dataset.from_generator.generator", "type function")
def _(w: World, v: Any) -> object:
    return Dataset.from_generator(v)


@row("Dataset.range", "negative", tells="mute")
def _(w: World, v: Any) -> object:
    return Dataset.range(v)


@row(
    "Dataset.range.output_type", "none type variable variable_of_other scalar_array deleted leaked"
)
def _(w: World, v: Any) -> object:
    return Dataset.range(3, output_type=v)


@row("Dataset.counter.start", "negative")
def _(w: World, v: Any) -> object:
    return Dataset.counter(v)


@row("Dataset.random.seed", "none negative")
def _(w: World, v: Any) -> object:
    return Dataset.random(v)


@row("Dataset.list_files.file_pattern", tells="scalar_array variable variable_of_other")
def _(w: World, v: Any) -> object:
    return Dataset.list_files(v)


@row("Dataset.load.path", tells="bytes texts")
def _(w: World, v: Any) -> object:
    return Dataset.load(v)


@row("Dataset.zip", "dataset", tells="empty_list")
def _(w: World, v: Any) -> object:
    return Dataset.zip(v)


@row("Dataset.sample_from_datasets.datasets", "dataset")
def _(w: World, v: Any) -> object:
    return Dataset.sample_from_datasets(v)


@row("Dataset.sample_from_datasets.weights", "none list variable variable_of_other dataset")
def _(w: World, v: Any) -> object:
    return Dataset.sample_from_datasets([_EIGHT, _EIGHT], v)


@row("Dataset.sample_from_datasets.stop_on_empty_dataset", "true")
def _(w: World, v: Any) -> object:
    return Dataset.sample_from_datasets([_EIGHT, _EIGHT], stop_on_empty_dataset=v)


@row("Dataset.choose_from_datasets.choice_dataset", "dataset")
def _(w: World, v: Any) -> object:
    return Dataset.choose_from_datasets([_EIGHT, _EIGHT], v)


@row("Dataset.with_options.options")
def _(w: World, v: Any) -> object:
    return _EIGHT.with_options(v)


@row("as_dataset.source", "list empty_list uneven_list set generator dataset")
def _(w: World, v: Any) -> object:
    return dl.data.as_dataset(v)


@row("Options.deterministic", "true")
def _(w: World, v: Any) -> object:
    dl.data.Options().deterministic = v
    return None


@row("AutoShardPolicy")
def _(w: World, v: Any) -> object:
    dl.data.Options().experimental_distribute.auto_shard_policy = v
    return None
