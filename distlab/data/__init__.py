"""distlab.data: tf.data's names over arrays, files and iterables.

Pipelines over arrays (`from_tensor_slices` or `range`, then shuffle, repeat,
batch, take, skip and shard in any order) are computed as index arithmetic: a batch
is one index operation for each component.

Example:
  >>> import distlab as dl
  >>> images, labels = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], [0, 1, 0]
  >>> dataset = dl.data.Dataset.from_tensor_slices((images, labels)).repeat(2).batch(4)
  >>> for x, y in dataset:
  ...     print(x.shape, y)
  (4, 2) [0 1 0 0]
  (2, 2) [1 0]
"""

from distlab.data._dataset import Dataset, as_dataset
from distlab.data.plan.engine import Element
from distlab.data.plan.optional import Optional
from distlab.data.plan.plan import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from distlab.data.plan.spec import DatasetSpec, TensorSpec
from distlab.data.sharding.auto_shard import auto_shard
from distlab.data.sharding.options import (
    SHARD_HINT,
    AutoShardPolicy,
    AutotuneAlgorithm,
    AutotuneOptions,
    DistributeOptions,
    ExternalStatePolicy,
    OptimizationOptions,
    Options,
    ThreadingOptions,
)
from distlab.data.sharding.worker_batches import worker_batches
from distlab.data.sources.file_datasets import TextLineDataset, TFRecordDataset

AUTOTUNE = -1
"""Lets distlab choose a buffer size or a degree of parallelism."""

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "AutotuneAlgorithm",
    "AutotuneOptions",
    "Dataset",
    "DatasetSpec",
    "DistributeOptions",
    "Element",
    "ExternalStatePolicy",
    "OptimizationOptions",
    "Optional",
    "Options",
    "TFRecordDataset",
    "TensorSpec",
    "TextLineDataset",
    "ThreadingOptions",
    "as_dataset",
    "auto_shard",
    "worker_batches",
]
