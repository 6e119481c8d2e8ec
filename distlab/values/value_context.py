"""The argument of a function that makes per-replica values."""

from __future__ import annotations

import msgspec


class ValueContext(msgspec.Struct, frozen=True):
    """The replica that a value is made for (`tf.distribute.experimental.ValueContext`).

    Attributes:
      replica_id_in_sync_group: The replica's number, from 0.
      num_replicas_in_sync: The number of replicas.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
      >>> ids = strategy.experimental_distribute_values_from_function(
      ...     lambda context: context.replica_id_in_sync_group
      ... )
      >>> [int(number) for number in strategy.experimental_local_results(ids)]
      [0, 1, 2]
    """

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1
