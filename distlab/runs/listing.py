"""The runs in a folder and in the folders within it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from distlab.runs.run_file import PATTERN

DEEPEST: Final = 3


def run_folders(root: Path, depth: int = DEEPEST) -> Iterator[Path]:
    """Gives the folders that hold a recorded run, in the order of their names.

    Links are not followed, so nothing outside of `root` is found.

    Args:
      root: where to look; it may be a run itself.
      depth: how many levels of folders to look into.
    """
    if any(root.glob(PATTERN)):
        yield root
    if depth:
        try:
            children = sorted(root.iterdir())
        except OSError:  # it went away, or may not be read
            return
        for child in children:
            if child.is_dir() and not child.is_symlink():
                yield from run_folders(child, depth - 1)
