"""Says what a process waits for, where it waits long for others that have not started."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

_SILENT_SECONDS: Final = 10.0
"""How long a wait says nothing: most clusters have started by then."""


def tell(text: str) -> None:
    """Prints a line on the standard error, if there is one that takes it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # a full disk; it was closed
            print(f"distlab: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def told(waits_for: Callable[[], str], limit: float) -> Iterator[None]:
    """Says once, after 10 s of the body, what it waits for."""

    def say() -> None:
        tell(f"waits for {waits_for()}, {limit:g} s at most.")

    timer = threading.Timer(_SILENT_SECONDS, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
