"""repeat: the elements several times, with a new order for each shuffle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.plan import INFINITE_CARDINALITY, Opener, PlainOrder, Reading, is_steady
from distlab.data.plan.positions import Cycled, Positions, Repeated


@dataclass(frozen=True, eq=False)
class Repeat(PlainOrder):
    """Reads its input `times` times; None repeats without end."""

    times: int | None

    @property
    def cardinality(self) -> int:
        """The product, infinite if one factor is and the other is not 0."""
        size = self.input.cardinality
        if self.times == 0 or size == 0:
            return 0
        if self.times is None:
            # TensorFlow too calls an endlessly repeated dataset infinite even
            # where its size is not known.
            return INFINITE_CARDINALITY
        return size if size < 0 else size * self.times

    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts the repeated positions."""
        size = self.input.cardinality
        if size >= 0 and is_steady(self.input):
            return Cycled(upstream(reading), size, self.times)
        return Repeated(
            lambda epoch: upstream(reading.within(epoch)), self.times, size if size >= 0 else None
        )

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the repeated elements."""
        return _RepeatStream(
            lambda epoch: open_input(self.input, reading.within(epoch)), self.times
        )


class _RepeatStream(Stream):
    def __init__(self, open_epoch: Callable[[int], Stream], times: int | None) -> None:
        super().__init__()
        self._open_epoch, self._times = open_epoch, times

    def __iter__(self) -> Reader:
        return _RepeatReader(self._open_epoch, self._times)


class _RepeatReader(Reader):
    def __init__(self, open_epoch: Callable[[int], Stream], times: int | None) -> None:
        super().__init__()
        self._open_epoch, self._times = open_epoch, times
        self._epoch = 0
        self._empty = True
        self._current: Reader | None = None

    def __next__(self) -> Element:
        while self._times is None or self._epoch < self._times:
            if self._current is None:
                self._current, self._empty = iter(self._open_epoch(self._epoch)), True
            try:
                element = next(self._current)
            except StopIteration:
                self._current.close()
                self._current = None
                if self._empty:  # an input without elements stays so
                    break
                self._epoch += 1
            else:
                self._empty = False
                return element
        raise StopIteration

    def get_state(self) -> State:
        current = None if self._current is None else self._current.get_state()
        return {"epoch": self._epoch, "empty": self._empty, "current": current}

    def set_state(self, state: State) -> None:
        self._epoch, self._empty = state["epoch"], state["empty"]
        self._current = None
        if state["current"] is not None:
            self._current = iter(self._open_epoch(self._epoch))
            self._current.set_state(state["current"])

    def close(self) -> None:
        """Closes the repetition that is being read."""
        if self._current is not None:
            self._current.close()
        super().close()
