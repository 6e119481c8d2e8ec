"""What the processes of a run are called."""

from __future__ import annotations

from typing import Final

MOST_WORKERS: Final = 4_096
"""Workers that are listed: a damaged file may tell of any number."""


def worker_name(process: int) -> str:
    """Returns the name of a process of a run of several, such as `"worker 1"`."""
    return f"worker {process}"
