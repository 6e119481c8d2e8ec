"""What kinds of variables there are (TensorFlow's enums)."""

from __future__ import annotations

import enum
from typing import Any

from distlab.errors import ArgumentTypeError


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


def check_kinds(name: str, synchronization: Any, aggregation: Any) -> None:
    """Checks what a variable was made with.

    Raises:
      ArgumentTypeError: a kind is no member of its enum.
    """
    for what, given, kinds in (
        ("synchronization", synchronization, VariableSynchronization),
        ("aggregation", aggregation, VariableAggregation),
    ):
        if not isinstance(given, kinds):
            raise ArgumentTypeError(
                f"{name}: {what} must be one of distlab.{kinds.__name__}."
                f"{{{', '.join(kinds.__members__)}}}, got {given!r}."
            )
