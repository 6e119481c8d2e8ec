"""The lanes of the timeline: their places, their activities and the activities' colours."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from distlab.charts.theme import colour
from distlab.folds.arrays import Floats

INPUT, PYTHON, FIRST_DEVICE = 0, 1, 2
"""Numbers of the lanes, from the top; devices follow `FIRST_DEVICE`."""

WAIT, CALL, EVEN, ODD, TRANSFER = range(5)
"""Activities: waiting for a batch, a call of `run`, a step (even, odd), a transfer."""

COLOURS = (colour(1), colour(5), colour(0), "#004f7d", colour(3))
"""Colours of the activities."""

_FILLED = 0.72

Range: TypeAlias = tuple[float, float]
"""Begin and end in seconds since the run began."""


def lane_places(lanes: int) -> tuple[Floats, Floats]:
    """Returns each lane's middle and height; middles of devices are 1 apart, from 0 down.

    The first two lanes grow with the number of devices: their labels need the room.
    """
    tall = max(1.0, (lanes - FIRST_DEVICE) / 12)
    middles = FIRST_DEVICE - np.arange(lanes, dtype=np.float64)
    middles[:FIRST_DEVICE] = 0.5 + tall * np.array([1.5, 0.5])[:lanes]
    heights = np.full(lanes, _FILLED)
    heights[:FIRST_DEVICE] *= tall
    return middles, heights
