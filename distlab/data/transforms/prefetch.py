"""prefetch: elements prepared ahead by a thread.

A consumer never waits for a thread that has died, and a close never for a source that may
not return another element.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from distlab.data.plan.engine import Pass, Reader, State, require_own_threads
from distlab.data.plan.plan import Opener, Reading, Unary
from distlab.errors import DistlabError
from distlab.threads import ROOM, Thread, Wake, waiting

_AUTOMATIC = 2
_POLL_SECONDS = 0.1


@dataclass(frozen=True, eq=False)
class Prefetch(Unary):
    """Keeps up to `size` elements ready; -1 chooses a number."""

    size: int

    def read(self, reading: Reading, open_input: Opener) -> Reader:
        """Opens the prefetched elements."""
        size = _AUTOMATIC if self.size < 0 else self.size
        open_one = functools.partial(open_input, self.input, reading)
        return PrefetchReader(open_one, size) if size else open_one()


class PrefetchReader(Reader):
    """Up to `size` items that a daemon thread has read ahead.

    It ends when the reader is closed or dropped, and at exit, before JAX is torn down.
    """

    def __init__(
        self, open_source: Callable[[], Pass], size: int, wait_seconds: float = 0.0
    ) -> None:
        super().__init__()
        self._open_source, self._size, self._wait = open_source, size, wait_seconds
        self._producer: Producer[Any] | None = None
        self._closed = False
        self._stop: Callable[[], object]
        self._begin_with(open_source())

    def __next__(self) -> Any:
        """Waits for the next item; raises the error of reading it."""
        if self._closed:
            raise StopIteration
        item = self.begin().get()
        if isinstance(item, BaseException):
            self._producer = None  # its thread has ended, and the source belongs to this one again
            raise item
        value, self._state = item
        return value

    def begin(self) -> Producer[Any]:
        """Starts the thread, unless it runs."""
        if self._producer is None:
            self._producer = Producer(self._source, self._size)
            self._stop = weakref.finalize(self, _end, self._producer, self._source, self._wait)
        self._producer.start()
        return self._producer

    def get_state(self) -> State:
        """Returns the position after the last item returned, not the thread's."""
        return self._state

    def set_state(self, state: State) -> None:
        """Goes to a position; the thread keeps its source, which it may be waiting for."""
        source = self._open_source()
        source.set_state(state)
        self._stop()
        self._producer, self._closed = None, False
        self._begin_with(source)

    def close(self) -> None:
        """Stops the thread, which then closes its source."""
        self._closed = True
        self._stop()

    def _begin_with(self, source: Pass) -> None:
        self._source, self._state = source, source.get_state()
        self._stop = source.close


def _end(producer: Producer[Any], source: Pass, wait_seconds: float) -> None:
    source.interrupt()
    producer.stop(wait_seconds)


ItemT = TypeVar("ItemT")


class Producer(Generic[ItemT]):
    """Reads ahead in a daemon thread from `start` until `stop`, the end, or an error.

    Whoever starts it holds it by then: no interrupt leaves a thread that nobody stops. There is no
    lock that an interrupt of the reader, which may be dropped meanwhile, could leave locked.
    """

    def __init__(self, source: Pass, size: int) -> None:
        self._size = size
        self._ready: deque[tuple[ItemT, State] | BaseException] = deque()
        self._added, self._taken = Wake(), Wake()
        self._stopping = False
        self._thread = Thread(self._produce, source, name="distlab-prefetch")
        self._process = 0

    def start(self) -> None:
        """Starts the thread, unless it has started."""
        if self._thread.ident is None:
            self._process = os.getpid()
            self._thread.start()

    def get(self) -> tuple[ItemT, State] | BaseException:
        """Returns the next item and the position after it, or the exception that ended it."""
        require_own_threads(self._process)
        while not self._ready:
            with waiting(self._thread):
                self._added.wait(_POLL_SECONDS)
            if not self._thread.is_alive() and not self._ready:
                return DistlabError("The prefetch thread has died.")
        item = self._ready.popleft()
        self._taken.set()
        return item

    def stop(self, wait_seconds: float = 0) -> None:
        """Asks the thread to stop."""
        self._stopping = True
        self._taken.set()
        if wait_seconds:  # an iterator's end may be that of the interpreter, without names
            self._thread.join(wait_seconds)

    def _produce(self, source: Pass) -> None:
        while not self._stopping:
            item: tuple[ItemT, State] | BaseException
            try:
                item = (next(source), source.get_state())
            except BaseException as error:  # noqa: BLE001 - raised again where it is read
                item = error
            while len(self._ready) >= self._size and not self._stopping:
                with waiting(ROOM):
                    self._taken.wait(_POLL_SECONDS)
            self._ready.append(item)
            self._added.set()
            if isinstance(item, BaseException):
                return
        source.close()
