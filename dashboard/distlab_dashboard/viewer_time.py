"""How much of a server's time a viewer takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

AHEAD_SECONDS: Final = 3.0
"""How much of the server's time a viewer may take at once: enough to open all pages in a row, each
of which takes some 0.2 s to make, or 0.7 s beside a training that uses all cores."""

SHARE: Final = 1 / 3
"""The part of the server's time that a viewer may take for long."""

_MOST_REST_SECONDS: Final = 2.0


class ViewerTime:
    """The time that a viewer may still take: none for messages without end, and enough for people.

    What a viewer has left grows with time, up to `AHEAD_SECONDS`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = AHEAD_SECONDS
        self._counted = clock()

    def rest_after(self, seconds: float) -> float:
        """Counts what a message took, and returns for how many seconds the next one has to wait."""
        now = self._clock()
        gained = (now - self._counted) * SHARE
        self._left = min(self._left + gained, AHEAD_SECONDS) - seconds
        self._counted = now
        return min(max(-self._left / SHARE, 0.0), _MOST_REST_SECONDS)
