"""The numbers that the user logged, one curve for each name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypedDict

import numpy as np

from distlab.events import Event, Metric
from distlab.folds._series import Series
from distlab.folds.arrays import Floats, Ints

_MOST_NAMES = 64
_LARGEST = np.nextafter(2.0**63, 0)
"""Points are floats; the next one is no whole number of 64 bits."""


class MetricColumns(TypedDict):
    """Columns of `Metrics`: one row for each name, in the order of first use.

    Attributes:
      name: Names of the metrics.
      step: For each metric the steps of its points: the step dispatched last before
        the value was logged.
      value: For each metric the values of its points, NaN and infinity as logged.
      last: The newest values.
      not_finite: How many of the logged values were NaN or infinite.
      merged: How many neighbouring values share two points, their lowest and their
        highest; 1 when each value has its own.
    """

    name: list[str]
    step: list[Ints]
    value: list[Floats]
    last: list[float]
    not_finite: list[int]
    merged: list[int]


class Metrics:
    """Logged numbers over steps, of the first 64 names."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Metric,)

    def __init__(self) -> None:
        self.version = 0
        self._series: dict[str, Series] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            if isinstance(event, Metric):
                for name, value in event.values.items():
                    self._add_value(name, event.step, value)
        self.version += bool(events)

    def _add_value(self, name: str, step: int, value: float) -> None:
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= _MOST_NAMES:
                return
            series = self._series[name] = Series()
        series.add(step, value)

    def columns(self) -> MetricColumns:
        """Returns the curves of all events so far."""
        curves = list(self._series.values())
        points = [curve.points() for curve in curves]
        return {
            "name": list(self._series),
            "step": [np.minimum(step, _LARGEST).astype(np.int64) for step, _ in points],
            "value": [value for _, value in points],
            "last": [curve.last for curve in curves],
            "not_finite": [curve.not_finite for curve in curves],
            "merged": [curve.merged for curve in curves],
        }
