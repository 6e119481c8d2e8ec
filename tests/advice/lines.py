"""The lines of the planted programs that advice names."""

from __future__ import annotations

from pathlib import Path


def code_at(source: str) -> str:
    """Returns the code of a line.

    Args:
      source: A file of this folder and the line's number, as in `"programs.py:12"`.
    """
    file, _, line = source.partition(":")
    return (Path(__file__).parent / file).read_text().splitlines()[int(line) - 1]
