"""The kinds of variables, by TensorFlow's enums."""

from __future__ import annotations

import enum
from typing import Any

from distlab.errors import ArgumentTypeError
from distlab.text.shown import shown


class VariableSynchronization(enum.Enum):
    """When the copies of a variable are synchronized (`tf.VariableSynchronization`).

    Attributes:
      AUTO: As ON_WRITE.
      NONE: Refused; it has no meaning for a distributed variable.
      ON_WRITE: Each assignment keeps the copies equal.
      ON_READ: Each replica writes its own copy; a read in cross-replica context
        aggregates the copies.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> on_read, total = dl.VariableSynchronization.ON_READ, dl.VariableAggregation.SUM
      >>> with strategy.scope():
      ...     examples = dl.Variable(0, synchronization=on_read, aggregation=total)
      >>> _ = strategy.run(examples.assign_add, args=(32,))
      >>> [int(copy) for copy in examples.values], int(examples)
      ([32, 32], 64)
    """

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """Aggregation of the values that replicas assign to one (`tf.VariableAggregation`).

    Attributes:
      NONE: Each replica assigns its own copy.
      SUM: All copies are assigned the sum.
      MEAN: All copies are assigned the mean.
      ONLY_FIRST_REPLICA: All copies are assigned the first replica's value.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     loss = dl.Variable(0.0, aggregation=dl.VariableAggregation.MEAN)
      >>> values = strategy.experimental_distribute_values_from_function(
      ...     lambda context: [1.0, 4.0][context.replica_id_in_sync_group]
      ... )
      >>> float(strategy.run(loss.assign, args=(values,)))
      2.5
    """

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3


def check_kinds(name: str, synchronization: Any, aggregation: Any) -> None:
    """Checks the kinds of a new variable."""
    for what, given, default in (
        ("synchronization", synchronization, VariableSynchronization.AUTO),
        ("aggregation", aggregation, VariableAggregation.NONE),
    ):
        kinds = type(default)
        if not isinstance(given, kinds):
            raise ArgumentTypeError(
                f"{name}: {what} must be one of distlab.{kinds.__name__}."
                f"{{{', '.join(kinds.__members__)}}}, got {shown(given)}. Leave it out for "
                f"{default.name}."
            )
