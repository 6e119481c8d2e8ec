"""shard: every n-th element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.plan import Opener, PlainOrder, Reading, Unary
from distlab.data.plan.positions import Positions, Strided, strided_size
from distlab.errors import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class Shard(PlainOrder):
    """Every `count`-th element from number `index` on."""

    count: int
    index: int

    @property
    def cardinality(self) -> int:
        """The number of elements of this shard."""
        size = self.input.cardinality
        return size if size < 0 else strided_size(size, self.count, self.index)

    def order(self, reading: Reading, upstream: Callable[[Reading], Positions]) -> Positions:
        """Starts every n-th position."""
        return Strided(upstream(reading), self.count, self.index)

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens every n-th element."""
        return _ShardStream(open_input(self.input, reading), self.count, self.index)


@dataclass(frozen=True, eq=False)
class ShardHint(Unary):
    """Marks where `auto_shard` divides under AutoShardPolicy.HINT."""

    def read(self, reading: Reading, open_input: Opener) -> Stream:  # noqa: ARG002
        """Raises an error, because the number of workers is unknown here."""
        raise InvalidArgumentError(
            "shard(SHARD_HINT, SHARD_HINT) can be read only after auto_shard has divided it, "
            "under AutoShardPolicy.HINT"
        )


class _ShardStream(Stream):
    def __init__(self, parent: Stream, count: int, index: int) -> None:
        super().__init__(parent)
        self._count, self._index = count, index

    def __iter__(self) -> Reader:
        return _ShardReader(iter(self._parent), self._count, self._index)


class _ShardReader(Reader):
    def __init__(self, parent: Reader, count: int, index: int) -> None:
        super().__init__(parent)
        self._count = count
        self._to_skip = index

    def __next__(self) -> Element:
        while self._to_skip:
            next(self._parent)
            self._to_skip -= 1
        element: Element = next(self._parent)
        self._to_skip = self._count - 1
        return element

    def get_state(self) -> State:
        return {"to_skip": self._to_skip, "parent": self._parent.get_state()}

    def set_state(self, state: State) -> None:
        self._to_skip = state["to_skip"]
        self._parent.set_state(state["parent"])
