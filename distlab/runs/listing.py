"""The runs in a folder and in the folders within it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from distlab.runs.run_file import PATTERN

DEEPEST: Final = 3


def run_folders(root: Path, depth: int = DEEPEST) -> Iterator[Path]:
    """Yields the folders that hold a recorded run, in the order of their names.

    Links are not followed, so nothing outside of `root` is found.

    Args:
      root: The folder to search; it may be a run itself.
      depth: Levels of subfolders to search.

    Example:
      >>> from pathlib import Path
      >>> import distlab as dl
      >>> from distlab.runs.listing import run_folders
      >>> for name in ("first", "second"):
      ...     dl.record(f"runs/{name}").close()
      >>> [folder.name for folder in run_folders(Path("runs"))]
      ['first', 'second']
    """
    if any(root.glob(PATTERN)):
        yield root
    if depth:
        try:
            children = sorted(root.iterdir())
        except OSError:  # it was deleted, or may not be read
            return
        for child in children:
            if child.is_dir() and not child.is_symlink():
                yield from run_folders(child, depth - 1)
