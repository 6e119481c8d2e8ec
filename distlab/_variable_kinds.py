"""What kinds of variables there are (TensorFlow's enums)."""

from __future__ import annotations

import enum


class VariableSynchronization(enum.Enum):
    """When the copies of a variable are brought together."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """How what the replicas assign becomes one value."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
