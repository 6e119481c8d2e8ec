"""What the processes of a run are called."""

from __future__ import annotations


def worker_name(process: int) -> str:
    """Returns the name of a process of a run of several, such as `"worker 1"`."""
    return f"worker {process}"
