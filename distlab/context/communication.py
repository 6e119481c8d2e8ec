"""TensorFlow's options of collectives."""

from __future__ import annotations

import enum
from typing import Any

from distlab.errors import OptionError
from distlab.text.counts import is_count, is_number
from distlab.text.shown import shown


class CommunicationImplementation(enum.Enum):
    """The library that communicates. The names are TensorFlow's; XLA always chooses it.

    Example:
      >>> import distlab as dl
      >>> nccl = dl.experimental.CommunicationImplementation.NCCL
      >>> dl.experimental.CommunicationOptions(implementation=nccl).implementation
      <CommunicationImplementation.NCCL: 'NCCL'>
    """

    AUTO = "AUTO"
    RING = "RING"
    NCCL = "NCCL"


class CommunicationOptions:
    """Hints for collectives (`tf.distribute.experimental.CommunicationOptions`).

    They do not change results: XLA packs and schedules collectives by itself.

    Args:
      bytes_per_pack: The number of bytes to send at a time; 0 lets XLA choose.
      timeout_seconds: The time to wait for other replicas; None waits indefinitely.
      implementation: A `CommunicationImplementation`, or its name.

    Raises:
      OptionError: A number is negative, or the implementation does not exist.

    Example:
      >>> import distlab as dl
      >>> options = dl.experimental.CommunicationOptions(bytes_per_pack=1 << 20)
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> def step(x):
      ...     return dl.get_replica_context().all_reduce("SUM", x, options)
      >>> [float(total) for total in strategy.run(step, args=(1.5,)).values]
      [3.0, 3.0]
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
        """Shows the hints."""
        return (
            f"CommunicationOptions(bytes_per_pack={self.bytes_per_pack}, timeout_seconds="
            f"{self.timeout_seconds}, implementation={self.implementation.name})"
        )


def collective_hints(
    bytes_per_pack: int = 0, timeout_seconds: float | None = None
) -> CommunicationOptions:
    """Makes `CommunicationOptions`, under TensorFlow's former name `CollectiveHints`.

    Args:
      bytes_per_pack: The number of bytes to send at a time; 0 lets XLA choose.
      timeout_seconds: The time to wait for other replicas; None waits indefinitely.

    Raises:
      OptionError: A number is negative.

    Example:
      >>> import distlab as dl
      >>> dl.experimental.CollectiveHints(bytes_per_pack=1024).bytes_per_pack
      1024
    """
    return CommunicationOptions(bytes_per_pack, timeout_seconds)


def require_options(options: Any, verb: str) -> None:
    """Checks the hints that a verb received."""
    if options is not None and not isinstance(options, CommunicationOptions):
        raise OptionError(
            f"options of {verb} must be CommunicationOptions or None, got {shown(options)}. Leave "
            "it out, or pass distlab.experimental.CommunicationOptions()."
        )


def _check_numbers(bytes_per_pack: Any, timeout_seconds: Any) -> None:
    if not is_count(bytes_per_pack):
        raise OptionError(
            "bytes_per_pack must be a whole number of bytes, 0 or more, got "
            f"{shown(bytes_per_pack)}. Use 0 to let XLA choose."
        )
    if timeout_seconds is not None and not (is_number(timeout_seconds) and timeout_seconds > 0):
        raise OptionError(
            f"timeout_seconds must be more than 0 or None, got {shown(timeout_seconds)}. Use None "
            "to wait indefinitely."
        )


def _implementation(value: Any) -> CommunicationImplementation:
    if isinstance(value, CommunicationImplementation):
        return value
    if isinstance(value, str) and value.upper() in CommunicationImplementation.__members__:
        return CommunicationImplementation[value.upper()]
    raise OptionError(
        f"implementation must be one of {list(CommunicationImplementation.__members__)}, got "
        f"{shown(value)}. Use AUTO to let XLA choose."
    )
