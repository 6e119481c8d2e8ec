"""prefetch: elements prepared ahead by a thread.

Grain's own thread prefetch is not used: its consumer waits without limit when the
producer dies of a `BaseException`, and its close waits for a source that may
never return another element.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from distlab.data._engine import Element, Reader, State, Stream
from distlab.data._plan import Opener, Reading, Unary
from distlab.errors import DistlabError
from distlab.threads import Thread

_AUTOMATIC = 2
_POLL_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class Prefetch(Unary):
    """Keeps up to `size` elements ready; -1 chooses a number."""

    size: int

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the prefetched elements."""
        size = _AUTOMATIC if self.size < 0 else self.size
        stream = open_input(self.input, reading)
        return PrefetchStream(stream, size) if size else stream


class PrefetchStream(Stream):
    """The elements of a stream, up to `size` of them read ahead by a thread."""

    def __init__(self, parent: Stream, size: int) -> None:
        super().__init__(parent)
        self._size = size

    def __iter__(self) -> Reader:
        """Starts a pass; its thread starts with the first element."""
        return _PrefetchReader(lambda: iter(self._parent), self._size)


def begin(reader: Reader) -> None:
    """Starts to read ahead, if the reader is one that does."""
    if isinstance(reader, _PrefetchReader):
        reader.begin()


class _PrefetchReader(Reader):
    """Reads from a bounded queue that a daemon thread fills."""

    def __init__(self, open_parent: Callable[[], Reader], size: int) -> None:
        super().__init__(open_parent())
        self._open_parent, self._size = open_parent, size
        self._state = self._parent.get_state()
        self._producer: Producer[Element] | None = None

    def __next__(self) -> Element:
        if self._closed:
            raise StopIteration
        item = self.begin().get()
        if isinstance(item, BaseException):
            self._producer = None
            raise item
        element, self._state = item
        return element

    def begin(self) -> Producer[Element]:
        """Starts the thread, unless it runs."""
        if self._producer is None:
            self._producer = Producer(self._parent, self._size)
        self._producer.start()
        return self._producer

    def get_state(self) -> State:
        return self._state

    def set_state(self, state: State) -> None:
        if self._producer is not None:
            # The thread may be waiting for its source, so it keeps that one.
            self._producer.stop()
            self._producer = None
            self._parents = (self._open_parent(),)
        self._parent.set_state(state)
        self._state = state

    def close(self) -> None:
        """Stops the thread, which then closes its source."""
        producer = getattr(self, "_producer", None)
        if producer is None:
            super().close()
            return
        self._closed = True
        producer.stop()


ItemT_co = TypeVar("ItemT_co", covariant=True)
ItemT = TypeVar("ItemT")


class Positioned(Protocol[ItemT_co]):
    """An iterator that can be read ahead."""

    def __next__(self) -> ItemT_co:
        """Returns the next item; raises `StopIteration` at the end."""

    def get_state(self) -> State:
        """Returns the position after the last item."""

    def close(self) -> None:
        """Ends the reading."""


class Producer(Generic[ItemT]):
    """Reads ahead in a daemon thread from `start` until `stop`, the end, or an error.

    Whoever starts it holds it by then: no interrupt leaves a thread that nobody stops.

    Args:
      source: The iterator to read; from now on only the thread uses it.
      size: The number of items to keep ready.
    """

    def __init__(self, source: Positioned[ItemT], size: int) -> None:
        self._items: queue.Queue[tuple[ItemT, State] | BaseException] = queue.Queue(size)
        self._stopping = threading.Event()
        self._thread = Thread(
            _produce, source, self._items, self._stopping, name="distlab-prefetch"
        )

    def start(self) -> None:
        """Starts the thread, unless it has started."""
        if self._thread.ident is None:
            self._thread.start()

    def get(self) -> tuple[ItemT, State] | BaseException:
        """Returns the next item and the position after it, or the exception that ended it."""
        while True:
            try:
                return self._items.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if not self._thread.is_alive() and self._items.empty():
                    return DistlabError("The prefetch thread has died.")

    def stop(self, wait_seconds: float = 0) -> None:
        """Asks the thread to stop.

        Args:
          wait_seconds: The longest wait for its end; it may be waiting for its source.
        """
        self._stopping.set()
        if wait_seconds:  # an iterator's end may be that of the interpreter, without names
            self._thread.join(wait_seconds)


def _produce(
    source: Positioned[ItemT],
    items: queue.Queue[tuple[ItemT, State] | BaseException],
    stopping: threading.Event,
) -> None:
    """Fills the queue; holds no reference to the reader, which may be dropped meanwhile."""
    while not stopping.is_set():
        item: tuple[ItemT, State] | BaseException
        try:
            item = (next(source), source.get_state())
        except BaseException as error:  # noqa: BLE001 - raised again where it is read
            item = error
        while not stopping.is_set():
            try:
                items.put(item, timeout=_POLL_SECONDS)
                break
            except queue.Full:
                continue
        if isinstance(item, BaseException):
            return
    source.close()
