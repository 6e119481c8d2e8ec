"""The numbers that the user logged, one curve for each name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from distlab.events import Event, Metric
from distlab.folds._fold import Columns
from distlab.folds._series import Series

_MOST_NAMES = 64


class Metrics:
    """Logged numbers over steps.

    Columns (one row for each name, in the order of first use):
      name: list of names.
      step: list of float64 arrays: the step that had been dispatched last.
      value: list of float64 arrays, NaN and infinity as they were logged.
      last: list of the newest values.
      count: list of how many values were logged.
      not_finite: list of how many of them were NaN or infinite.
      merged: list of how many neighbouring values share two points (the lowest
        and the highest of them); 1 means that every value is there.
      values_left_out: single number: values of names beyond the first 64.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Metric,)

    def __init__(self) -> None:
        self.version = 0
        self._series: dict[str, Series] = {}
        self._left_out = 0

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            if isinstance(event, Metric):
                for name, value in event.values.items():
                    self._take(name, event.step, value)
        self.version += bool(events)

    def _take(self, name: str, step: int, value: float) -> None:
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= _MOST_NAMES:
                self._left_out += 1
                return
            series = self._series[name] = Series()
        series.add(step, value)

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        curves = list(self._series.values())
        points = [curve.points() for curve in curves]
        return {
            "name": list(self._series),
            "step": [step for step, _ in points],
            "value": [value for _, value in points],
            "last": [curve.last for curve in curves],
            "count": [curve.count for curve in curves],
            "not_finite": [curve.not_finite for curve in curves],
            "merged": [curve.merged for curve in curves],
            "values_left_out": self._left_out,
        }
