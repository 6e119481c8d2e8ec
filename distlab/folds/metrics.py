"""The numbers that the user logged, one curve for each name."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Final, TypedDict

import numpy as np

from distlab.events import Event, Metric
from distlab.folds._fold import Fold
from distlab.folds._series import Series
from distlab.folds.arrays import Floats, Ints
from distlab.text.metric_names import MAIN, is_accuracy, is_loss

_MOST_CURVES: Final = 64
"""Curves of losses, of accuracies and of all others: each kind has its own room, so that none
takes that of the loss. A curve takes up to 170 kB."""

_MOST_NAMES: Final = 10_000
"""Names without a curve: a program may log a new name in each step."""

_LARGEST = np.nextafter(2.0**63, 0)
"""Points are floats; the next one is no whole number of 64 bits."""


class MetricColumns(TypedDict):
    """Columns of `Metrics`: one row for each curve, in the order of first use."""

    name: list[str]
    step: list[Ints]  #: The step dispatched last before each value
    value: list[Floats]  #: For each metric the values of its points, NaN and infinity as logged
    last: list[float]
    not_finite: list[int]  #: How many of the logged values were NaN or infinite
    merged: list[int]  #: Neighbours that share two points, lowest and highest
    without_curve: dict[str, float]  #: The newest values of further names, which have no curve
    values_left_out: int  #: How many values of still further names are not kept


class Metrics(Fold[MetricColumns]):
    """Logged numbers over steps: 64 curves of each kind, and the newest value of other names."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Metric,)

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self._of_kind = Counter[str]()
        self._without_curve: dict[str, float] = {}
        self._left_out = 0

    def _add(self, event: Event) -> None:
        if isinstance(event, Metric):
            for name, value in event.values.items():
                self._add_value(name, event.step, value)

    def _add_value(self, name: str, step: int, value: float) -> None:
        series = self._series.get(name)
        if series is None and name not in self._without_curve and self._has_room(name):
            series = self._series[name] = Series()
        if series is not None:
            series.add(step, value)
        elif name in self._without_curve or len(self._without_curve) < _MOST_NAMES:
            self._without_curve[name] = value
        else:
            self._left_out += 1

    def _has_room(self, name: str) -> bool:
        """Returns whether a new name gets a curve, and counts it."""
        if name in MAIN:
            return True
        kind = "loss" if is_loss(name) else "accuracy" if is_accuracy(name) else "other"
        if self._of_kind[kind] >= _MOST_CURVES:
            return False
        self._of_kind[kind] += 1
        return True

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
            "without_curve": dict(self._without_curve),
            "values_left_out": self._left_out,
        }
