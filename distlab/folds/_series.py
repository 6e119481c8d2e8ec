"""Curves and amounts over time in bounded memory."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from distlab.folds.arrays import Floats


class _Bucket(NamedTuple):
    """Some neighbouring points: where they begin and end, and what they reach and add up to."""

    begin: float
    end: float
    low: float
    high: float
    total: float
    finite: int

    def mean(self) -> float:
        """Returns the mean of the finite values; without any, the value itself."""
        return self.total / self.finite if self.finite else self.low


class Curve(NamedTuple):
    """The points of a curve in order; of neighbours that share one, their middle and mean."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


class Series:
    """Points of one curve, any number of them, in bounded memory.

    Neighbours share a bucket with their mean, lowest and highest. When the buckets are full,
    pairs of them are merged: `merged` points share one.
    """

    def __init__(self, buckets: int = 1_000) -> None:
        self._most = buckets
        self._buckets: list[_Bucket] = []
        self._in_open = 0
        self.count = 0
        self.not_finite = 0
        self.merged = 1
        self.first = math.nan
        self.last = math.nan

    def add(self, x: float, value: float) -> None:
        """Adds a point; `x` must not fall from one call to the next."""
        if not self.count:
            self.first = value
        self.count += 1
        self.last = value
        finite = math.isfinite(value)
        self.not_finite += not finite
        point = _Bucket(x, x, value, value, value if finite else 0.0, int(finite))
        if self._in_open:
            self._buckets[-1] = _join(self._buckets[-1], point)
        else:
            self._buckets.append(point)
        self._in_open = (self._in_open + 1) % self.merged
        if len(self._buckets) >= self._most and not self._in_open:
            self._merge()

    def _merge(self) -> None:
        pairs = zip(self._buckets[::2], self._buckets[1::2], strict=True)
        self._buckets = [_join(left, right) for left, right in pairs]
        self.merged *= 2

    def curve(self) -> Curve:
        """Returns the kept points."""
        rows = [((one.begin + one.end) / 2, one.mean(), one.low, one.high) for one in self._buckets]
        return Curve(*np.array(rows, np.float64).reshape(-1, 4).T)


def _join(left: _Bucket, right: _Bucket) -> _Bucket:
    low = left.low if right.low >= left.low or math.isnan(right.low) else right.low
    high = left.high if right.high <= left.high or math.isnan(right.high) else right.high
    total, finite = left.total + right.total, left.finite + right.finite
    return _Bucket(left.begin, right.end, low, high, total, finite)


class Cells:
    """Equal cells of time from `start_s` on, each with amounts by name; `most` is even."""

    def __init__(self, start_s: float, width_s: float, most: int, *, widen: bool) -> None:
        self.start_s = start_s
        self.width_s = width_s
        self.most = most
        self._widen = widen
        self._amounts: dict[object, Floats] = {}

    def of(self, name: object, lanes: int = 0) -> Floats:
        """Returns the amounts of a name, zeros at first, `(most,)` or `(most, lanes)`."""
        amounts = self._amounts.get(name)
        if amounts is None:
            shape = (self.most, lanes) if lanes else (self.most,)
            amounts = self._amounts[name] = np.zeros(shape)
        return amounts

    def drop(self, name: object) -> None:
        """Forgets the amounts of a name."""
        self._amounts.pop(name, None)

    def place(self, time_s: float) -> int:
        """Returns the index of a time's cell, -1 outside of all; it may widen all cells."""
        place = int((time_s - self.start_s) // self.width_s)
        if 0 <= place < self.most:
            return place
        if place < 0 or not self._widen:
            return -1
        self._double()
        return self.place(time_s)

    def spread(self, name: object, begin_s: float, end_s: float, amounts: Floats | float) -> None:
        """Adds amounts, spread evenly over a span of time."""
        if end_s <= begin_s or end_s <= self.start_s:
            return
        last, first = self.place(end_s), self.place(begin_s)
        kept = self.of(name)
        if first == last >= 0:  # most spans are short
            kept[first] += amounts
            return
        first, last = max(first, 0), last if last >= 0 else self.most - 1
        edges = self.start_s + np.arange(first, last + 2) * self.width_s
        parts = np.diff(np.clip(edges, begin_s, end_s)) / (end_s - begin_s)
        kept[first : last + 1] += parts[:, None] * amounts if kept.ndim > 1 else parts * amounts

    def _double(self) -> None:
        half = self.most // 2
        for amounts in self._amounts.values():
            amounts[:half] = amounts[::2] + amounts[1::2]
            amounts[half:] = 0
        self.width_s *= 2
