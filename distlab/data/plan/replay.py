"""Streams over Python iterators, whose positions are restored by reading again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.errors import OneShotError


class ReplayStream(Stream):
    """The values of an iterator; a restore reads up to the position again."""

    def __init__(self, start: Callable[[], Iterator[Any]]) -> None:
        super().__init__()
        self._start = start

    def __iter__(self) -> Reader:
        """Starts a pass."""
        return _ReplayReader(self._start)


class ReplayedElements(ReplayStream):
    """The elements of an iterator, which come with their positions in the source."""

    def __init__(self, start: Callable[[], Iterator[Element]]) -> None:
        super().__init__(start)

    def __iter__(self) -> Reader:
        """Starts a pass."""
        return _ElementReplayReader(self._start)


class _ReplayReader(Reader):
    def __init__(self, start: Callable[[], Iterator[Any]]) -> None:
        super().__init__()
        self._start = start
        self._iterator: Iterator[Any] | None = None
        self._given = 0
        self._interrupted = False

    def __next__(self) -> Element:
        if self._iterator is None:
            self._iterator = self._start()
        try:
            value = next(self._iterator)
        except StopIteration:
            if self._interrupted:  # which ends a generator as its last element does
                raise OneShotError(
                    f"An interrupt came while element {self._given} was read, and the generator or "
                    "iterator behind this dataset has ended since. Begin a new iterator, or "
                    "restore(state()) this one, which reads the earlier elements again."
                ) from None
            raise
        except BaseException as error:
            self._interrupted = not isinstance(error, Exception)
            raise
        self._interrupted = False
        self._given += 1
        return Element(value, None)

    def get_state(self) -> State:
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        self._close_iterator()
        self._given, self._interrupted = 0, False
        while self._given < state["given"]:
            next(self)

    def close(self) -> None:
        """Closes the iterator, if it can be closed."""
        self._close_iterator()
        super().close()

    def _close_iterator(self) -> None:
        iterator, self._iterator = getattr(self, "_iterator", None), None
        # A generator closes its files and the like in its `finally` blocks.
        close = getattr(iterator, "close", None)
        if callable(close):
            close()


class _ElementReplayReader(_ReplayReader):
    def __next__(self) -> Element:
        element: Element = super().__next__().value
        return element


@contextlib.contextmanager
def reading_of(stream: Stream) -> Iterator[Reader]:
    """Starts a pass that is closed at the end of the block."""
    reader = iter(stream)
    try:
        yield reader
    finally:
        reader.close()
