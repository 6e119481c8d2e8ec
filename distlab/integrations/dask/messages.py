"""What messages between processes consist of."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from distributed.protocol.serialize import to_serialize

Frames: TypeAlias = list[Any]
"""A pickle, and the buffers that it refers to."""

UNKNOWN: Final = "unknown session"
"""The answer of a process that was started anew, or was told to forget the session."""

WITHDRAWN: Final = "withdrawn closure"
"""The answer for a closure that a worker had not begun when the coordinator took it back."""

AFTER_ERROR: Final = "closure after one that failed"
"""The answer for a closure that a worker did not begin, as one failed that was given before it."""


def sendable(frames: Frames) -> Frames:
    """Returns a pickle as parts of a message, of which the large ones are not copied."""
    return [frames[0], *(to_serialize(buffer) for buffer in frames[1:])]
