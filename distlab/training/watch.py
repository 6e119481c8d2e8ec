"""What the steps of a loop, which are given an iterator, read from it."""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from types import GeneratorType
from typing import Any, final

from distlab.data.plan.reads import Reads, reads_of


@final
class Watch:
    """Tells whether a step that returned was behind the end of the data.

    A step is to end by the `StopIteration` of `next(iterator)`; one that catches it, or has a loop
    of its own, returns for ever. One that reads ahead meets the end, too, and has elements to
    return yet: so it may take as many steps as it read elements. What other threads read is left
    alone, because it may be for any step.

    Args:
      source: The iterator.

    Attributes:
      source: The iterator.
      iterator: What the steps are to read: the iterator, or a plain one that notes what they take.
      took: The number of elements that the last step took.
      over: Whether it met the end, and no step can follow.
      loops: Whether the first step took several elements and met the end.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self.source = self.iterator = source
        self._reads = reads_of(source)
        if self._reads is None and _is_plain(source):
            self.iterator = noting = _Noting(source)
            self._reads = noting.reads
        self._steps = self._taken = self._ends = self.took = 0
        self._sizes: list[int] = []
        self.over = self.loops = False

    def count(self) -> None:
        """Counts a step that has returned."""
        self._steps += 1
        reads = self._reads
        if reads is None or reads.threads - {get_ident()}:
            self.over = False
            return
        self.took, met = reads.taken - self._taken, reads.ends > self._ends
        self._taken, self._ends = reads.taken, reads.ends
        if not met:  # the two smallest tell: the first step may have filled what reads ahead
            self._sizes = sorted([*self._sizes, self.took])[:2]
        elif self._steps == 1:
            self.loops = self.took > 1
        each = max(self._sizes[0], 1) if len(self._sizes) == 2 else 1
        self.over = met and (self._steps == 1 or self.loops or reads.taken < self._steps * each)

    @property
    def unread(self) -> int:
        """The number of steps if none has read anything, as far as that can be told; else 0."""
        reads = self._reads
        return self._steps if reads is not None and not reads.threads else 0


@final
class _Noting(Iterator[Any]):
    """Notes what is taken from an iterator that has no methods of its own, but a generator's."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self.reads = Reads()

    def __next__(self) -> Any:
        reads = self.reads
        reads.begin()
        try:
            value = next(self._iterator)
        except StopIteration:
            reads.ends += 1
            raise
        reads.taken += 1
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # such as copy's, before there is an iterator
            raise AttributeError(name)
        return getattr(self._iterator, name)


def _is_plain(iterator: Any) -> bool:
    """Returns whether nothing but `next` is of use with an iterator.

    Others are passed on as they are: what they return may be read by methods that aren't known
    here, and a coordinator's are sent to workers.
    """
    public = (name for name in dir(iterator) if not name.startswith("_"))
    return isinstance(iterator, GeneratorType) or not any(public)
