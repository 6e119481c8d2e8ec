"""Orders of elements: slices (take, skip, shard), repeat, shuffle, concatenate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Reader, State
from distlab.data.plan.plan import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Opener,
    PlainOrder,
    Reading,
    Several,
    Unary,
    walk,
)
from distlab.data.plan.positions import Permuted, Positions, Repeated, Sliced, Windowed
from distlab.data.plan.seeded import Seeded
from distlab.data.plan.spec import common_spec
from distlab.errors import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class Slice(PlainOrder):
    """Every `step`-th element from number `start` on, at most `count`: take, skip and shard."""

    start: int = 0
    step: int = 1
    count: int | None = None

    @property
    def cardinality(self) -> int:
        """The number of elements that are left; unknown if the input's is."""
        size = self.input.cardinality
        if size == INFINITE_CARDINALITY:
            return size if self.count is None else self.count
        if size == UNKNOWN_CARDINALITY:
            return size
        found = max(0, -(-(size - self.start) // self.step))
        return found if self.count is None else min(found, self.count)

    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts the positions."""
        return Sliced(upstream(reading), self.start, self.step, self.count)

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the elements."""
        return _SliceReader(open_input(self.input, reading), self)


@dataclass(frozen=True, eq=False)
class ShardHint(Unary):
    """Marks where `auto_shard` divides under AutoShardPolicy.HINT."""

    def read(self, reading: Reading, open_input: Opener) -> Reader:  # noqa: ARG002
        """Raises an error, because the number of workers is unknown here."""
        raise InvalidArgumentError(
            "shard(SHARD_HINT, SHARD_HINT) can be read only after auto_shard has divided it, "
            "under AutoShardPolicy.HINT"
        )


class _SliceReader(Reader):
    FIELDS = ("_to_skip", "_left")

    def __init__(self, parent: Reader, node: Slice) -> None:
        super().__init__(parent)
        self._to_skip, self._step, self._left = node.start, node.step, node.count

    def __next__(self) -> Element:
        if self._left == 0:
            raise StopIteration
        while self._to_skip:
            next(self._parent)
            self._to_skip -= 1
        element = next(self._parent)
        self._to_skip = self._step - 1
        if self._left is not None:
            self._left -= 1
        return element


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
        return Repeated(
            lambda epoch: upstream(reading.within(epoch)), self.times, size if size >= 0 else None
        )

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the repeated elements."""
        return _RepeatReader(
            lambda epoch: open_input(self.input, reading.within(epoch)), self.times
        )


class _RepeatReader(Reader):
    def __init__(self, open_epoch: Callable[[int], Reader], times: int | None) -> None:
        super().__init__()
        self._open_epoch, self._times = open_epoch, times
        self._epoch = 0
        self._empty = True
        self._current: Reader | None = None

    def __next__(self) -> Element:
        while self._times is None or self._epoch < self._times:
            if self._current is None:
                self._current, self._empty = self._open_epoch(self._epoch), True
            try:
                element = next(self._current)
            except StopIteration:
                self.close()
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
            self._current = self._open_epoch(self._epoch)
            self._current.set_state(state["current"])

    def close(self) -> None:
        """Closes the repetition that is being read."""
        if self._current is not None:
            self._current.close()


@dataclass(frozen=True, eq=False)
class Shuffle(PlainOrder, Seeded):
    """Draws each element uniformly from the next `size` ones."""

    size: int

    @functools.cached_property
    def window(self) -> int:
        """The number of elements from which the first one is drawn, all of them at most."""
        count = self.input.cardinality
        return min(count, self.size) if count >= 0 else self.size

    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts the shuffled positions."""
        positions, random = upstream(reading), self.generator(reading)
        if self.size == 1:
            return positions
        count = self.input.cardinality
        if 0 <= count <= self.size:
            return Permuted(positions, count, random)
        return Windowed(positions, self.size, random)

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the shuffled elements."""
        reader = open_input(self.input, reading)
        if self.size == 1:
            return reader
        return _ShuffleReader(reader, self.size, lambda: self.generator(reading))


class _ShuffleReader(Reader):
    """Keeps the window in memory; too large for a position, a restore reads and draws it again."""

    def __init__(
        self, parent: Reader, size: int, make_random: Callable[[], np.random.Generator]
    ) -> None:
        super().__init__(parent)
        self._size, self._make_random = size, make_random
        self._ended, self._given = False, 0
        self._begin(parent.get_state())

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
        self._parent.set_state(state["beginning"])
        self._begin(state["beginning"])
        for _ in range(state["given"]):
            next(self)

    def _begin(self, beginning: State) -> None:
        self._beginning = beginning
        self._random = self._make_random()
        self._window: list[Element] = []
        self._ended, self._given = False, 0


@dataclass(frozen=True, eq=False)
class Concatenate(Several):
    """All elements of the first of two parts, then all of the second.

    Positions are known where both read the same source: in two sources they would be ambiguous.
    """

    @functools.cached_property
    def spec(self) -> Any:
        """The most specific specs that both satisfy."""
        return common_spec(*(part.spec for part in self.parts))

    @property
    def cardinality(self) -> int:
        """The sum."""
        sizes = [part.cardinality for part in self.parts]
        if INFINITE_CARDINALITY in sizes:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in sizes else sum(sizes)

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens one after the other."""
        of_one = len({node for node in walk(self) if not node.inputs}) == 1
        first, second = (open_input(part, reading) for part in self.parts)
        return _ConcatenateReader(first, second, of_one_source=of_one)


class _ConcatenateReader(Reader):
    FIELDS = ("_in_second",)

    def __init__(self, first: Reader, second: Reader, *, of_one_source: bool) -> None:
        super().__init__(first, second)
        self._of_one_source = of_one_source
        self._in_second = False

    def __next__(self) -> Element:
        element = None if self._in_second else next(self._parent, None)
        if element is None:
            self._in_second = True
            element = next(self._parents[1])
        return element if self._of_one_source else element._replace(indices=None)
