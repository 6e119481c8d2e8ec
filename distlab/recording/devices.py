"""The watcher (follows the devices in a later commit)."""

from __future__ import annotations

from collections.abc import Callable

import jax

from distlab.events import Event


class Watcher:
    """Follows what devices are busy with."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """May follow a result."""

    def flush(self) -> None:
        """Emits what is known."""
