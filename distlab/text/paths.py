"""Paths, before anything is written."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from distlab.text.shown import shown

_URL: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:/")  # pathlib makes one stroke of two


def path_refusal(path: str | os.PathLike[Any], what: str) -> str | None:
    """Returns why a path is refused that can't name a file of this machine."""
    named = os.fsdecode(path)
    if _URL.match(named):
        return (
            f"{what} needs a path of this machine's file system, got the URL {shown(named)}. "
            "Use a folder where the storage is mounted, or copy the files with its own tool."
        )
    try:
        invalid = b"\0" in named.encode() + os.fsencode(named)
    except UnicodeEncodeError:
        invalid = True
    if invalid:
        return (
            f"{what} needs a path of characters that names of files have here "
            f"({sys.getfilesystemencoding()}), got {named!a}. Use another name, or set "
            "PYTHONUTF8=1 in the environment."
        )
    return None


def at_home(path: str) -> str:
    """Returns a path whose leading `~` is the user's home folder, as in a shell."""
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib raises where there is no such user


def is_folder(path: Path) -> bool:
    """Returns whether a path is a folder; one that can't be looked for is none.

    `Path.is_dir` raises where a folder above may not be entered.
    """
    return os.path.isdir(path)  # noqa: PTH112
