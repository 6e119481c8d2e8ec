"""The argument of a function that makes per-replica values."""

from __future__ import annotations

import msgspec

from distlab.errors import ArgumentValueError
from distlab.text.shown import shown


class ValueContext(msgspec.Struct, frozen=True):
    """The replica that a value is made for (`tf.distribute.experimental.ValueContext`).

    Attributes:
      replica_id_in_sync_group: The replica's number, from 0.
      num_replicas_in_sync: The number of replicas.

    Raises:
      ArgumentValueError: One is no whole number, or there is no such replica.

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

    def __post_init__(self) -> None:
        """Checks the numbers."""
        number, count = self.replica_id_in_sync_group, self.num_replicas_in_sync
        if not (type(number) is type(count) is int and 0 <= number < count):
            raise ArgumentValueError(
                "A ValueContext needs the number of a replica, from 0, and the number of replicas, "
                f"got {shown(number)} and {shown(count)}. Write for example ValueContext(1, 2)."
            )
