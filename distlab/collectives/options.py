"""Hints about how to communicate, and the names that TensorFlow gives them."""

from __future__ import annotations

import enum
from typing import Any

from distlab.errors import OptionError


class CommunicationImplementation(enum.Enum):
    """Which library communicates. XLA chooses here; the names are TensorFlow's."""

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


class CommunicationOptions:
    """Hints for collectives (`tf.distribute.experimental.CommunicationOptions`).

    They change no value. XLA packs and schedules collectives by itself.

    Args:
      bytes_per_pack: how many bytes to send at a time; 0 lets XLA choose.
      timeout_seconds: how long to wait for the others; None waits.
      implementation: a `CommunicationImplementation`, or its name.

    Raises:
      OptionError: a number is negative, or there is no such
        implementation.
    """

    def __init__(
        self,
        bytes_per_pack: int = 0,
        timeout_seconds: float | None = None,
        implementation: CommunicationImplementation | str = CommunicationImplementation.AUTO,
    ) -> None:
        _check_numbers(bytes_per_pack, timeout_seconds)
        self.bytes_per_pack = bytes_per_pack
        self.timeout_seconds = timeout_seconds
        self.implementation = _implementation(implementation)

    def __repr__(self) -> str:
        """Writes the hints."""
        return (
            f"CommunicationOptions(bytes_per_pack={self.bytes_per_pack}, timeout_seconds="
            f"{self.timeout_seconds}, implementation={self.implementation.name})"
        )


def collective_hints(
    bytes_per_pack: int = 0, timeout_seconds: float | None = None
) -> CommunicationOptions:
    """Makes `CommunicationOptions` by their older name (`CollectiveHints`)."""
    return CommunicationOptions(bytes_per_pack, timeout_seconds)


def _check_numbers(bytes_per_pack: Any, timeout_seconds: Any) -> None:
    if not isinstance(bytes_per_pack, int) or bytes_per_pack < 0:
        raise OptionError(
            "bytes_per_pack must be a whole number of bytes, 0 or more, got "
            f"{bytes_per_pack!r}. Use 0 to let XLA choose."
        )
    if timeout_seconds is not None and not (
        isinstance(timeout_seconds, int | float) and timeout_seconds > 0
    ):
        raise OptionError(
            f"timeout_seconds must be more than 0 or None, got {timeout_seconds!r}. Use None "
            "to wait."
        )


def _implementation(value: Any) -> CommunicationImplementation:
    if isinstance(value, CommunicationImplementation):
        return value
    if isinstance(value, str) and value.upper() in CommunicationImplementation.__members__:
        return CommunicationImplementation[value.upper()]
    raise OptionError(
        f"implementation must be one of {list(CommunicationImplementation.__members__)}, got "
        f"{value!r}."
    )
