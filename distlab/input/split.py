"""The division of a global batch over the replicas."""

from __future__ import annotations


def sizes(batch: int, replicas: int) -> list[int]:
    """Divides a batch as `tf.distribute` does.

    Each replica has ceil(batch / replicas) examples while there are any, so that
    the last replicas may have fewer or none.
    """
    each = -(-batch // replicas)
    return [max(0, min(each, batch - replica * each)) for replica in range(replicas)]
