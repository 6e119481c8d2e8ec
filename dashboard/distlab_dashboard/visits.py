"""How many pages links of other sites open: each page takes the training's time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

MOST_VISITS: Final = 10
"""Pages that links of other sites may open in a minute, all of them together."""

_PERIOD_SECONDS: Final = 60.0


class Visits:
    """The visits of the last minute that began at pages of other sites.

    They are counted together: a browser does not say whose link was followed, and a page can
    navigate a window that it opened as often as it likes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: deque[float] = deque(maxlen=MOST_VISITS)

    def admit(self) -> bool:
        """Returns whether one more visit may open a page, and counts it if so."""
        now = self._clock()
        if len(self._began) == MOST_VISITS and now < self._began[0] + _PERIOD_SECONDS:
            return False
        self._began.append(now)
        return True
