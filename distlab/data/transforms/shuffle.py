"""shuffle: random order from a window that slides over the elements."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.plan import Opener, PlainOrder, Reading
from distlab.data.plan.positions import Permuted, Positions, Windowed
from distlab.data.plan.seeded import Seeded


@dataclass(frozen=True, eq=False)
class Shuffle(PlainOrder, Seeded):
    """Draws each element uniformly from the next `size` ones.

    The seed, the number of the pass and the repetitions around it determine the
    order, so that a pass can be repeated exactly.
    """

    size: int

    @functools.cached_property
    def window(self) -> int:
        """The number of elements from which the first one is drawn, all of them at most."""
        count = self.input.cardinality
        return min(count, self.size) if count >= 0 else self.size

    @property
    def steady(self) -> bool:
        """Whether each pass has the same order."""
        return not self.reshuffle or self.size == 1

    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts the shuffled positions."""
        positions, random = upstream(reading), self.generator(reading)
        if self.size == 1:
            return positions
        count = self.input.cardinality
        if 0 <= count <= self.size:
            return Permuted(positions, count, random)
        return Windowed(positions, self.size, random)

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the shuffled elements."""
        stream = open_input(self.input, reading)
        if self.size == 1:
            return stream
        return _ShuffleStream(stream, self.size, lambda: self.generator(reading))


class _ShuffleStream(Stream):
    def __init__(
        self, parent: Stream, size: int, make_random: Callable[[], np.random.Generator]
    ) -> None:
        super().__init__(parent)
        self._size, self._make_random = size, make_random

    def __iter__(self) -> Reader:
        return _ShuffleReader(iter(self._parent), self._size, self._make_random)


class _ShuffleReader(Reader):
    """Keeps the window in memory, and counts the elements it returned.

    A restore reads and draws again, because the window is too large for a
    position.
    """

    def __init__(
        self, parent: Reader, size: int, make_random: Callable[[], np.random.Generator]
    ) -> None:
        super().__init__(parent)
        self._size, self._make_random = size, make_random
        self._beginning = parent.get_state()
        self._random = make_random()
        self._window: list[Element] = []
        self._ended = False
        self._given = 0

    def __next__(self) -> Element:
        while not self._ended and len(self._window) < self._size:
            try:
                self._window.append(next(self._parent))
            except StopIteration:
                self._ended = True
        if not self._window:
            raise StopIteration
        # The drawn element changes places with the last, which is cheap to remove.
        drawn = int(self._random.random() * len(self._window))
        self._window[drawn], self._window[-1] = self._window[-1], self._window[drawn]
        self._given += 1
        return self._window.pop()

    def get_state(self) -> State:
        return {"beginning": self._beginning, "given": self._given}

    def set_state(self, state: State) -> None:
        self._beginning = state["beginning"]
        self._parent.set_state(self._beginning)
        self._random = self._make_random()
        self._window = []
        self._ended = False
        self._given = 0
        for _ in range(state["given"]):
            next(self)
