"""Warnings that point to the user's line."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


def warn(message: str, category: type[Warning]) -> None:
    """Warns of what the user's code, which called distlab, does.

    Args:
      message: What to say.
      category: The class of the warning.
    """
    level, frame = 2, sys._getframe(1)  # level 1 is this function
    while frame.f_back is not None and _package(frame) in ("distlab", "jax"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
