"""Waiting for a condition instead of for some time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LIMIT_SECONDS = 60


def wait_until(
    holds: Callable[[], bool], what: str = "a condition", pause_seconds: float = 0.01
) -> None:
    """Waits until something holds, with a limit."""
    end = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < end, f"waited too long for {what}"
        threading.Event().wait(pause_seconds)
