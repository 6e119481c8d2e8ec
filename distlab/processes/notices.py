"""Lines on the standard error about waits for other processes."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

_SILENT_SECONDS: Final = 10.0
"""Most clusters have started by then."""


def notice(text: str) -> None:
    """Prints a line on the standard error, if there is one that takes it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a full disk; it was closed
            print(f"distlab: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def announced(waits_for: Callable[[], str], limit: float) -> Iterator[None]:
    """Names once, after 10 s of the body, what it waits for."""
    timer = threading.Timer(
        _SILENT_SECONDS, lambda: notice(f"waits for {waits_for()}, {limit:g} s at most.")
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
