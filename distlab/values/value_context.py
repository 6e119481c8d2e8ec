"""What a function that makes per-replica values is told."""

from __future__ import annotations

import msgspec


class ValueContext(msgspec.Struct, frozen=True):
    """Which replica a value is made for (`tf.distribute.experimental.ValueContext`).

    Attributes:
      replica_id_in_sync_group: the replica's number, from 0.
      num_replicas_in_sync: how many replicas there are.
    """

    replica_id_in_sync_group: int = 0
    num_replicas_in_sync: int = 1
