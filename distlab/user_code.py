"""The line of the user's code that called distlab, for warnings and events."""

from __future__ import annotations

import functools
import sys
import sysconfig
import warnings
from pathlib import Path
from types import FrameType
from typing import Final, Literal, TypeAlias

from distlab.errors import NoEffectWarning

_DISTLAB: Final = Path(__file__).parent
_LIBRARIES: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib"))
_INSTALLED: Final = {"site-packages", "dist-packages"}
_COMPILERS: Final = ("compiler.py", "mlir.py", "partial_eval.py")
_CALLERS: Final = ("distlab", "jax", "keras")
"""The libraries that call distlab for the user."""

_without_effect: Final[set[str]] = set()

Part: TypeAlias = Literal["user", "distlab", "compiler", "library"]


def warn(message: str, category: type[Warning]) -> None:
    """Warns of what the user's code, which called distlab, does."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _calls_for_the_user(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)  # level 1 is this function


def warn_no_effect(called: str, why: str = "") -> None:
    """Warns once that an option has no effect."""
    if called not in _without_effect:
        _without_effect.add(called)
        text = f"{called} has no effect{why}. It is accepted for compatibility with TensorFlow."
        warn(text, NoEffectWarning)


def calling_line() -> str:
    """Returns the line of the user's code that called distlab, as `line_text`; "" for none."""
    return line_of(sys._getframe(1))


def line_of(frame: FrameType | None) -> str:
    """Returns the file and line of the user's code that a frame runs, or that called it."""
    while frame is not None and part_of(frame) != "user":
        frame = frame.f_back
    return "" if frame is None else line_text(frame.f_code.co_filename, frame.f_lineno)


def line_text(filename: str, line: int) -> str:
    """Returns a line as text: `"train.py:34"`, in a notebook `"cell 13, line 4"`."""
    cell = cell_of(filename)
    return f"{_name(filename)}:{line}" if cell is None else f"{cell}, line {line}"


@functools.lru_cache(4096)
def _name(filename: str) -> str:
    return Path(filename).name


cells: Final[dict[str, str]] = {}
"""Cells of another process's notebook by the files that stand for them."""


def cell_of(filename: str) -> str | None:
    """Returns the notebook's cell that a file stands for, by the number of its last run."""
    if filename in cells:
        return cells[filename]
    if "ipykernel_" not in filename and "<ipython-input" not in filename:
        return None
    known = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    named = known and known.compile.format_code_name(filename)
    return f"cell {named[1].strip('In[]')}" if named else "a cell"


def part_of(frame: FrameType) -> Part:
    """Returns whose code a frame runs; functions that a library made of a string are its own."""
    code = frame.f_code
    made = code.co_filename == "<string>" and frame.f_globals.get("__name__") != "__main__"
    return "library" if made else _part(code.co_filename)


def is_users(filename: str) -> bool:
    """Returns whether a file, as Python names it, is the user's."""
    return _part(filename) == "user"


@functools.lru_cache(4096)
def _part(filename: str) -> Part:
    """Returns whose a file is; the demo counts as a user's program."""
    path = Path(filename)
    if _DISTLAB in path.parents:
        return "user" if path.relative_to(_DISTLAB).parts[0] == "demo" else "distlab"
    # Packages may also lie in a user's own folder, or in that of another environment.
    if filename.startswith(("<frozen", *_LIBRARIES)) or _INSTALLED & set(path.parts):
        inside = "jax" in path.parts and path.name in _COMPILERS
        return "compiler" if inside else "library"
    return "user"


def _calls_for_the_user(frame: FrameType) -> bool:
    """Returns whether a frame is a library's that calls distlab; the demo is a user's program."""
    package, *inner = str(frame.f_globals.get("__name__", "")).split(".")
    return package in _CALLERS and inner[:1] != ["demo"]
