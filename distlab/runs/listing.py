"""The runs in a folder and in the folders within it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from distlab.errors import NotARunError
from distlab.runs.run import Run
from distlab.runs.run_file import PATTERN
from distlab.runs.summary import Summary
from distlab.text.shown import shown_text

DEEPEST: Final = 3
"""Levels of subfolders: a server looks again every two seconds, and may be given any folder."""


def run_folders(root: Path, depth: int = DEEPEST) -> Iterator[Path]:
    """Yields the folders that hold a recorded run, in the order of their names.

    Links are not followed. A folder that may not be read may be one: `summary_of` names the reason.
    """
    try:
        with os.scandir(root) as found:  # a third of the time that Path.iterdir takes
            children = sorted(found, key=lambda child: child.name)
    except PermissionError:
        yield root
        return
    except OSError:  # it was deleted
        return
    enters = os.access(root, os.X_OK)
    if any(fnmatchcase(child.name, PATTERN) for child in children) or not enters:
        yield root
    if depth and enters:
        for child in children:
            if _is_folder(child):
                yield from run_folders(root / child.name, depth - 1)


def _is_folder(child: os.DirEntry[str]) -> bool:
    """Returns whether something in a folder is a folder, and no link to one."""
    try:
        return child.is_dir(follow_symlinks=False)
    except OSError:
        return False


class Unreadable(NamedTuple):
    """A folder whose run can't be read, and why, as a sentence."""

    path: Path
    why: str


def summary_of(folder: Path) -> Summary | Unreadable:
    """Returns a run's summary, or why it has none."""
    try:
        with Run.open(folder) as run:
            return run.summary()
    except NotARunError as error:
        return Unreadable(folder, shown_text(error))
    except Exception as error:  # noqa: BLE001 - one damaged run must not hide the others
        return Unreadable(folder, f"{type(error).__name__}: {shown_text(error)}")
