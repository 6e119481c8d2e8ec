"""How a global batch is divided over the replicas."""

from __future__ import annotations


def sizes(batch: int, replicas: int) -> list[int]:
    """Divides a batch as `tf.distribute` does.

    Each replica gets ceil(batch / replicas) examples as long as there are any,
    so that the last ones get fewer or none: 133 examples on 8 replicas are
    seven times 17 and then 14; 5 examples on 8 replicas leave 3 empty.

    Args:
      batch: examples in the global batch, at least 0.
      replicas: number of replicas, at least 1.

    Returns:
      Examples for each replica; their sum is `batch`.
    """
    each = -(-batch // replicas)
    return [max(0, min(each, batch - replica * each)) for replica in range(replicas)]
