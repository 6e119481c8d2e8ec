"""Paths, before anything is written."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

from distlab.text.shown import shown

_URL: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:/")  # pathlib makes one stroke of two


def path_refusal(path: str | os.PathLike[Any], what: str) -> str | None:
    """Returns why a path is refused that can't name a file of this machine.

    Args:
      path: The path.
      what: What is read or written there.

    Returns:
      A message, of a URL such as `gs://bucket/name` and of what no name of a file contains; None
      where the path is right.
    """
    named = os.fsdecode(path)
    if _URL.match(named):
        return (
            f"{what} needs a path of this machine's file system, got the URL {shown(named)}. "
            "Use a folder where the storage is mounted, or copy the files with its own tool."
        )
    try:
        invalid = b"\0" in named.encode()
    except UnicodeEncodeError:
        invalid = True
    if invalid:
        return (
            f"{what} needs a path of UTF-8 characters other than NUL, got {shown(named)}. Use "
            "another name."
        )
    try:
        os.fsencode(named)
    except UnicodeEncodeError:
        return (
            f"{what} needs a path of characters that names of files have here, which are "
            f"{sys.getfilesystemencoding()}, got {named!a}. Set PYTHONUTF8=1 in the "
            "environment."
        )
    return None
