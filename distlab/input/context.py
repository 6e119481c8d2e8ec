"""The context of a dataset function, and the strategy whose replicas read."""

from __future__ import annotations

import operator
from typing import Protocol

import msgspec

from distlab.context.host import Host
from distlab.errors import ArgumentValueError
from distlab.text.shown import shown
from distlab.values.last_batches import LastBatches


class InputContext(msgspec.Struct, frozen=True):
    """The part of the input that a dataset function makes (`tf.distribute.InputContext`).

    Attributes:
      num_input_pipelines: The number of datasets: one for each worker, or one for
        each replica under `InputReplicationMode.PER_REPLICA`.
      input_pipeline_id: The number of this dataset, from 0.
      num_replicas_in_sync: The number of replicas on all workers.

    Example:
      >>> import distlab as dl
      >>> context = dl.InputContext(num_input_pipelines=2, input_pipeline_id=1)
      >>> dataset = dl.data.Dataset.range(8)
      >>> shard = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
      >>> [int(n) for n in shard]
      [1, 3, 5, 7]
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns the number of examples of a global batch for each replica.

        Args:
          global_batch_size: The number of examples in a global batch.

        Raises:
          TypeError: The size is not a whole number.
          ArgumentValueError: The size is not a multiple of `num_replicas_in_sync`.

        Example:
          >>> import distlab as dl
          >>> context = dl.InputContext(num_replicas_in_sync=8)
          >>> context.get_per_replica_batch_size(64)
          8
        """
        replicas = self.num_replicas_in_sync
        each, rest = divmod(operator.index(global_batch_size), replicas)
        if rest:
            raise ArgumentValueError(
                f"global_batch_size must be a multiple of num_replicas_in_sync ({replicas}), got "
                f"{shown(global_batch_size)}. Use a multiple, or pass the global batches to "
                "experimental_distribute_dataset, which divides batches of any size."
            )
        return each


class InputHost(Host, Protocol):
    """A host whose replicas read datasets."""

    @property
    def reads_per_replica(self) -> bool:
        """True if each replica may read a dataset of its own."""

    @property
    def reads_here(self) -> bool:
        """True if the calling thread may read the replicas' datasets."""

    @property
    def input_context(self) -> InputContext:
        """The argument of a dataset function on this worker."""

    @property
    def batch(self) -> LastBatches:
        """The last batches of distributed datasets."""
