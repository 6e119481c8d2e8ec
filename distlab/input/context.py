"""What a function that makes a dataset is told about the input it makes."""

from __future__ import annotations

import msgspec

from distlab.errors import ArgumentValueError


class InputContext(msgspec.Struct, frozen=True):
    """Which part of the input a dataset function makes (`tf.distribute.InputContext`).

    Attributes:
      num_input_pipelines: how many datasets are made: one for each worker, or
        one for each replica under `InputReplicationMode.PER_REPLICA`.
      input_pipeline_id: which of them this is, from 0.
      num_replicas_in_sync: how many replicas there are on all workers.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns how many examples of a global batch each replica gets.

        Args:
          global_batch_size: examples in the batches of all replicas together.

        Raises:
          ArgumentValueError: it does not divide evenly.
        """
        replicas = self.num_replicas_in_sync
        each, rest = divmod(global_batch_size, replicas)
        if rest:
            below, above = global_batch_size - rest, global_batch_size - rest + replicas
            nearest = f"{below} or {above}" if below > 0 else str(above)
            raise ArgumentValueError(
                f"global_batch_size must be a multiple of num_replicas_in_sync ({replicas}), got "
                f"{global_batch_size}. Use {nearest}; or give the global batches to "
                "experimental_distribute_dataset, which divides batches of any size."
            )
        return each
