"""Rows of devices: one for each, or one for some neighbours when there are many."""

from __future__ import annotations

from collections import deque

import numpy as np

_MOST_ROWS = 64
_MOST_SPANS = 2_000


class Rows:
    """The devices of one strategy, in at most 64 rows of one or of some neighbours.

    Attributes:
      devices: how many devices there are.
      group: how many of them share a row; the last row may have fewer.
      starts: place of each row's first device.
      sizes: how many devices each row has.
      watched: begins and ends of the newest watched windows, in seconds.
      watched_to_s: where the newest one ends.
    """

    def __init__(self, devices: int) -> None:
        """Makes the rows of so many devices."""
        self.devices = devices
        self.group = max(1, -(-devices // _MOST_ROWS))
        self.starts = np.arange(0, devices, self.group)
        self.sizes = np.diff(self.starts, append=devices)
        self.watched: deque[tuple[float, float]] = deque(maxlen=_MOST_SPANS)
        self.watched_to_s = 0.0

    def watch(self, begin_s: float, end_s: float) -> None:
        """Notes a watched window; it joins the one before when they touch."""
        self.watched_to_s = end_s
        if self.watched and begin_s <= self.watched[-1][1]:
            self.watched[-1] = (self.watched[-1][0], end_s)
        else:
            self.watched.append((begin_s, end_s))

    def names(self, devices: list[str]) -> list[str]:
        """Returns the rows' names: a device, or the first and the last of a group."""
        known = dict(enumerate(devices))
        ends = zip(self.starts, self.starts + self.sizes - 1, strict=True)
        texts = [[known.get(int(d), f"replica {d}") for d in pair] for pair in ends]
        return [first if first == last else f"{first} to {last}" for first, last in texts]
