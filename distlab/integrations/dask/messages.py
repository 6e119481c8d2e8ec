"""What messages between processes consist of."""

from __future__ import annotations

import pickle
from typing import Any, Final, NamedTuple, TypeAlias

Frames: TypeAlias = list[Any]
"""A pickle, and the buffers that it refers to."""

FAILED: Final = "failed"
"""The answer of a parameter server with the error that it raised."""

UNKNOWN: Final = "unknown session"
"""The answer of a process that was started anew, or was told to forget the session."""

WITHDRAWN: Final = "withdrawn closure"
"""The answer for a closure that a worker had not begun when the coordinator took it back."""

AFTER_ERROR: Final = "closure after one that failed"
"""The answer for a closure that a worker did not begin, as one failed that was given before it."""


class Order(NamedTuple):
    """When a closure was given to a worker.

    Attributes:
      number: Its number; later ones have larger ones.
      after: The closures of the same worker whose answers the coordinator had not looked at then.
    """

    number: int
    after: list[int]


def sendable(frames: Frames) -> Frames:
    """Returns a pickle as parts of a message, of which the large ones are not copied."""
    return [frames[0], *map(pickle.PickleBuffer, frames[1:])]
