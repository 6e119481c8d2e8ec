"""`tf.distribute.experimental.partitioners`: into how many parts variables are divided.

Example:
  >>> import distlab as dl
  >>> partitioner = dl.experimental.partitioners.MaxSizePartitioner(max_shard_bytes=1 << 20)
  >>> partitioner((1_000_000, 4), "float32")
  [16, 1]
"""

from distlab.variables.partitioners import (
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
    Partitioner,
)

__all__ = [
    "FixedShardsPartitioner",
    "MaxSizePartitioner",
    "MinSizePartitioner",
    "Partitioner",
]
