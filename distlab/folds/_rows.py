"""Rows of devices: one for each, or one for a group of neighbours when there are many."""

from __future__ import annotations

from collections import deque

import numpy as np

from distlab.folds._fold import replica_names

_MOST_ROWS = 64
_MOST_SPANS = 2_000


class Rows:
    """The devices of one strategy, in at most 64 rows of one device or one group each.

    Attributes:
      devices: How many devices there are.
      group: How many of them share a row; the last row may have fewer.
      starts: Index of each row's first device.
      sizes: How many devices each row has.
      watched: Begins and ends of the newest watched windows, in seconds.
      watched_to_s: When the newest one ends.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.group = max(1, -(-devices // _MOST_ROWS))
        self.starts = np.arange(0, devices, self.group)
        self.sizes = np.diff(self.starts, append=devices)
        self.watched: deque[tuple[float, float]] = deque(maxlen=_MOST_SPANS)
        self.watched_to_s = 0.0

    def watch(self, begin_s: float, end_s: float) -> None:
        """Adds a watched window, or extends the one before when they touch."""
        self.watched_to_s = end_s
        if self.watched and begin_s <= self.watched[-1][1]:
            self.watched[-1] = (self.watched[-1][0], end_s)
        else:
            self.watched.append((begin_s, end_s))

    def names(self, devices: list[str]) -> list[str]:
        """Returns a name for each row: a device, or the first and the last of a group."""
        names = replica_names(devices, self.devices)
        ends = zip(self.starts.tolist(), (self.starts + self.sizes - 1).tolist(), strict=True)
        return [names[a] if a == b else f"{names[a]} to {names[b]}" for a, b in ends]
