"""What each device did in the newest capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from distlab.events import Capture, Event, Run
from distlab.folds._fold import Clock, Columns

SORTS = ("compute", "waiting", "copy", "idle")


class Captures:
    """The newest short profile of the devices.

    Columns:
      count: captures so far.
      device: list of device names.
      start_s, end_s: seconds since the run began.
      steps: steps handed over meanwhile.
      asked_by: `"user"` or `"recorder"`.
      compute, waiting, copy, idle: float64 arrays `(devices,)`: shares, 0 to 1,
        together 1.
      spans: for each device an array `(n, 3)`, float64: begin and end in
        milliseconds after `start_s`, and what (0 compute, 1 waiting, 2 copy).
      spans_left_out: spans that were not kept.
      profile_bytes: size of the profile.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Capture)

    def __init__(self) -> None:
        self.version = 0
        self._clock = Clock()
        self._count = 0
        self._newest: Capture | None = None

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            if isinstance(event, Capture):
                self._count += 1
                self._newest = event
            else:
                self._clock.start(event.time_ns)
        self.version += bool(events)

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        newest = self._newest
        if newest is None:
            nothing: Columns = {sort: np.zeros(0) for sort in SORTS}
            return {
                **nothing,
                "count": 0,
                "device": [],
                "start_s": 0.0,
                "end_s": 0.0,
                "steps": 0,
                "asked_by": "",
                "spans": [],
                "spans_left_out": 0,
                "profile_bytes": 0,
            }
        whole = max(newest.time_ns - newest.start_ns, 1)
        shares = {sort: np.array(getattr(newest, f"{sort}_ns")) / whole for sort in SORTS}
        return {
            **shares,
            "count": self._count,
            "device": newest.devices,
            "start_s": self._clock.seconds(newest.start_ns),
            "end_s": self._clock.seconds(newest.time_ns),
            "steps": newest.steps,
            "asked_by": newest.asked_by,
            "spans": [_spans(packed) for packed in newest.spans],
            "spans_left_out": newest.spans_left_out,
            "profile_bytes": newest.profile_bytes,
        }


def _spans(packed: bytes) -> np.ndarray:
    """Returns a device's spans with begins and ends in milliseconds."""
    rows = np.frombuffer(packed, "<i8").reshape(-1, 3).astype(np.float64)
    rows[:, 1] += rows[:, 0]
    rows[:, :2] /= 1e6
    return rows
