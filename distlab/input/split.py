"""The division of a global batch over the replicas."""

from __future__ import annotations


def sizes(batch: int, replicas: int) -> list[int]:
    """Divides a batch as `tf.distribute` does.

    Each replica has ceil(batch / replicas) examples while there are any, so that
    the last replicas may have fewer or none.

    Args:
      batch: The number of examples in the global batch, at least 0.
      replicas: The number of replicas, at least 1.

    Returns:
      The number of examples of each replica; their sum is `batch`.

    Example:
      >>> from distlab.input.split import sizes
      >>> sizes(133, replicas=8)
      [17, 17, 17, 17, 17, 17, 17, 14]
      >>> sizes(5, replicas=8)
      [1, 1, 1, 1, 1, 0, 0, 0]
    """
    each = -(-batch // replicas)
    return [max(0, min(each, batch - replica * each)) for replica in range(replicas)]
