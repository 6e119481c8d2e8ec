"""Amounts spread over equal cells of time, in bounded memory."""

from __future__ import annotations

import numpy as np

from distlab.folds.arrays import Floats


class Cells:
    """Equal cells of time, each with amounts by name.

    The amounts depend on what was added and on its order, never on when they are read.

    Attributes:
      start_s: When the first cell begins, in seconds.
      width_s: Width of a cell in seconds.
      most: The most cells, an even number.
    """

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
