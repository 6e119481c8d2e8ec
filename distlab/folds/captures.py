"""The newest capture: how each device spent its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict

import numpy as np

from distlab.events import Capture, Event, Run
from distlab.folds._fold import Clock
from distlab.folds.arrays import Floats


class CaptureColumns(TypedDict):
    """Columns of `Captures`.

    Shares are of the captured time, 0 to 1; the four of a device add up to 1.

    Attributes:
      count: How many captures the run made.
      device: Names of the devices in the newest capture.
      start_s: When it began, in seconds since the run began.
      end_s: When it ended.
      steps: How many steps were dispatched during it.
      asked_by: `"user"` or `"recorder"`.
      compute: Each device's share spent on computing.
      waiting: Each device's share spent on waiting for other devices.
      copy: Each device's share spent on copying.
      idle: Each device's share spent on nothing.
      spans: For each device an array `(spans, 3)`: begin and end in milliseconds
        after `start_s`, and the activity (0 compute, 1 waiting, 2 copy).
      spans_left_out: How many short spans the capture left out.
      profile_bytes: Size of the profile.
    """

    count: int
    device: list[str]
    start_s: float
    end_s: float
    steps: int
    asked_by: str
    compute: Floats
    waiting: Floats
    copy: Floats
    idle: Floats
    spans: list[Floats]
    spans_left_out: int
    profile_bytes: int


class Captures:
    """The newest short profile of the devices."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Capture)

    def __init__(self) -> None:
        self.version = 0
        self._clock = Clock()
        self._count = 0
        self._newest: Capture | None = None

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            if isinstance(event, Capture):
                self._count += 1
                self._newest = event
            else:
                self._clock.start(event.time_ns)
        self.version += bool(events)

    def columns(self) -> CaptureColumns:
        """Returns the newest capture."""
        newest = self._newest
        if newest is None:
            return {
                "count": 0,
                "device": [],
                "start_s": 0.0,
                "end_s": 0.0,
                "steps": 0,
                "asked_by": "",
                "compute": np.zeros(0),
                "waiting": np.zeros(0),
                "copy": np.zeros(0),
                "idle": np.zeros(0),
                "spans": [],
                "spans_left_out": 0,
                "profile_bytes": 0,
            }
        length_ns = max(newest.time_ns - newest.start_ns, 1)
        return {
            "count": self._count,
            "device": newest.devices,
            "start_s": self._clock.seconds(newest.start_ns),
            "end_s": self._clock.seconds(newest.time_ns),
            "steps": newest.steps,
            "asked_by": newest.asked_by,
            "compute": np.array(newest.compute_ns) / length_ns,
            "waiting": np.array(newest.waiting_ns) / length_ns,
            "copy": np.array(newest.copy_ns) / length_ns,
            "idle": np.array(newest.idle_ns) / length_ns,
            "spans": [_spans(packed) for packed in newest.spans],
            "spans_left_out": newest.spans_left_out,
            "profile_bytes": newest.profile_bytes,
        }


def _spans(packed: bytes) -> Floats:
    """Returns a device's spans with begins and ends in milliseconds."""
    rows = np.frombuffer(packed, "<i8").reshape(-1, 3).astype(np.float64)
    rows[:, 1] += rows[:, 0]
    rows[:, :2] /= 1e6
    return rows
