"""The operations that reduce the replicas' values to one."""

from __future__ import annotations

import enum

from distlab.errors import ReduceOpError
from distlab.text.shown import shown


class ReduceOp(enum.Enum):
    """Operation that reduces the values of all replicas to one (`tf.distribute.ReduceOp`).

    Attributes:
      SUM: Their sum.
      MEAN: Their mean.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> ids = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group)
      >>> int(strategy.reduce(dl.ReduceOp.SUM, ids, axis=None))
      1
      >>> float(strategy.reduce("mean", ids, axis=None))
      0.5
    """

    SUM = "SUM"
    MEAN = "MEAN"

    @classmethod
    def of(cls, op: ReduceOp | str) -> ReduceOp:
        """Returns the operation of a name.

        Args:
          op: A `ReduceOp`, or its name in any letter case.

        Raises:
          ReduceOpError: `op` is neither SUM nor MEAN.
        """
        if isinstance(op, cls):
            return op
        if isinstance(op, str) and op.upper() in cls.__members__:
            return cls[op.upper()]
        raise ReduceOpError(
            f"A reduce op must be ReduceOp.SUM or ReduceOp.MEAN (or its name), got {shown(op)}. "
            "For other reductions, combine the components that experimental_local_results returns."
        )
