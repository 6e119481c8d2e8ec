"""The numbers that the user logged, one curve for each name."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Final, TypedDict

from distlab.events import Event, Metric, Run
from distlab.folds._fold import Fold
from distlab.folds._series import Series
from distlab.folds.arrays import Floats
from distlab.text.metric_names import MAIN, is_accuracy, is_loss

_MOST_CURVES: Final = 64
"""Curves of losses, of accuracies and of all others: each kind has its own room, so that none
takes that of the loss. A curve takes up to 150 kB."""

_MOST_NAMES: Final = 10_000
"""Names without a curve: a program may log a new name in each step."""


class MetricColumns(TypedDict):
    """Columns of `Metrics`: one row for each curve, in the order of first use."""

    name: list[str]
    step: list[Floats]  #: The step dispatched last before each value; the middle of neighbours'
    value: list[Floats]  #: The values, NaN and infinity as logged; of neighbours the mean
    low: list[Floats]  #: The lowest of the neighbours that share a point
    high: list[Floats]
    first: list[float]
    last: list[float]
    not_finite: list[int]  #: How many of the logged values were NaN or infinite
    merged: list[int]  #: How many neighbours share a point
    without_curve: dict[str, float]  #: The newest values of further names, which have no curve
    values_left_out: int  #: How many values of still further names are not kept


class Metrics(Fold[MetricColumns]):
    """Numbers that the newest run logged over steps.

    There are 64 curves of each kind, and the newest value of other names.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Metric)

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Forgets the numbers of the run before."""
        self._series: dict[str, Series] = {}
        self._of_kind = Counter[str]()
        self._without_curve: dict[str, float] = {}
        self._left_out = 0

    def _add(self, event: Event) -> None:
        if isinstance(event, Run):
            self._begin()
        elif isinstance(event, Metric):
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
        all_series = list(self._series.values())
        curves = [series.curve() for series in all_series]
        return {
            "name": list(self._series),
            "step": [curve.x for curve in curves],
            "value": [curve.mean for curve in curves],
            "low": [curve.low for curve in curves],
            "high": [curve.high for curve in curves],
            "first": [series.first for series in all_series],
            "last": [series.last for series in all_series],
            "not_finite": [series.not_finite for series in all_series],
            "merged": [series.merged for series in all_series],
            "without_curve": dict(self._without_curve),
            "values_left_out": self._left_out,
        }
