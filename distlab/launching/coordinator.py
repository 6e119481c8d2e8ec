"""Starts the process of the coordination service."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from distlab.launching.warden import Warden
from distlab.launching.worker_process import WorkerProcess, Write

_SCRIPT = Path(__file__).with_name("coordinator_process.py")


def start(
    address: str,
    workers: int,
    *,
    warden: Warden,
    write: Write,
    ended: Callable[[WorkerProcess], None],
) -> WorkerProcess:
    """Starts the process of the coordination service, which serves until it is killed."""
    return WorkerProcess(
        "coordinator",
        # Without its own folder in the path, whose modules could hide others.
        [sys.executable, "-P", str(_SCRIPT), address, str(workers)],
        {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        warden=warden,
        write=write,
        ended=ended,
    )
