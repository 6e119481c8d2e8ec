"""The line of the user's code that called distlab, for warnings and events."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Final

_LIBRARIES: Final = ("distlab", "jax", "keras")
"""What calls distlab for the user."""


def warn(message: str, category: type[Warning]) -> None:
    """Warns of what the user's code, which called distlab, does.

    Args:
      message: What to say.
      category: The class of the warning.
    """
    level, _ = _caller(sys._getframe(1))
    warnings.warn(message, category, stacklevel=level + 1)  # level 1 is this function


def calling_line() -> str:
    """Returns the file and line at which the user's code called distlab, as `"train.py:34"`.

    A notebook's cells have files of IPython's, whose names say nothing: those are `"cell:34"`.
    """
    _, frame = _caller(sys._getframe(1))
    return line_text(frame.f_code.co_filename, frame.f_lineno)


def line_text(filename: str, line: int) -> str:
    """Returns a line as text, as `calling_line` does.

    Args:
      filename: The file as Python names it.
      line: The line's number.
    """
    path = Path(filename)
    of_cell = path.parent.name.startswith("ipykernel_") or path.name.startswith("<ipython-input")
    return f"{'cell' if of_cell else path.name}:{line}"


def _caller(frame: FrameType) -> tuple[int, FrameType]:
    """Returns the first frame from this one on that is not distlab's, and how far up it is."""
    level = 1
    while frame.f_back is not None and _is_library(frame):
        level, frame = level + 1, frame.f_back
    return level, frame


def _is_library(frame: FrameType) -> bool:
    """Returns whether a frame is a library's; the demo counts as a user's program."""
    package, *inner = str(frame.f_globals.get("__name__", "")).split(".")
    return package in _LIBRARIES and inner[:1] != ["demo"]
