"""The operations that combine the replicas' values."""

from __future__ import annotations

import enum

from distlab.errors import ReduceOpError


class ReduceOp(enum.Enum):
    """How values of all replicas become one (`tf.distribute.ReduceOp`)."""

    SUM = "SUM"
    MEAN = "MEAN"

    @classmethod
    def of(cls, op: ReduceOp | str) -> ReduceOp:
        """Returns the operation that was named.

        Args:
          op: a `ReduceOp`, or its name in any letter case.

        Raises:
          ReduceOpError: there is no such operation.
        """
        if isinstance(op, cls):
            return op
        if isinstance(op, str) and op.upper() in cls.__members__:
            return cls[op.upper()]
        raise ReduceOpError(
            f"A reduce op is ReduceOp.SUM or ReduceOp.MEAN (or its name), got {op!r}. For other "
            "reductions take the components with experimental_local_results."
        )
