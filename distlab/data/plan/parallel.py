"""A function of each element, called by several threads, with the results in order."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from distlab.data.plan.engine import Element, Reader, State, require_own_threads

_TRIAL = 8
_WORTHWHILE_SECONDS = 5e-4
"""A call through the pool costs some 50 microseconds; threads gain on longer ones only."""


def cores() -> int:
    """Returns the number of threads that AUTOTUNE uses."""
    return os.cpu_count() or 1


class Stopwatch:
    """An estimate of the time of a call, from the first ones."""

    def __init__(self) -> None:
        self._calls = 0
        self._fastest = float("inf")

    @property
    def says_parallel(self) -> bool:
        """True if threads are worthwhile."""
        return self._calls >= _TRIAL and self._fastest > _WORTHWHILE_SECONDS

    def time(self, call: Callable[[], Element]) -> Element:
        """Makes a call and takes its time, of the first ones."""
        if self._calls >= _TRIAL:
            return call()
        start = time.perf_counter()
        result = call()
        self._calls += 1
        self._fastest = min(self._fastest, time.perf_counter() - start)
        return result


class ParallelMapped(Reader):
    """The results of a function of each element, in order, computed ahead by threads.

    The position is after the last one returned. -1 threads are one each core, once calls take long.
    """

    def __init__(
        self, parent: Reader, function: Callable[[Element], Element], threads: int
    ) -> None:
        super().__init__(parent)
        self._function = function
        self._threads = cores() if threads < 0 else threads
        self._watch = Stopwatch() if threads < 0 else None
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0
        self._begin(parent.get_state())

    def __next__(self) -> Element:
        """Returns the next result."""
        if self._watch is not None:
            if self._threads == 1 or not self._watch.says_parallel:
                return self._serial(self._watch)
            self._watch, self._state = None, self._parent.get_state()
        if self._pool is not None:
            require_own_threads(self._process)
        self._submit()
        if not self._pending:
            self._end_threads()
            raise StopIteration
        self._state, result = self._pending.popleft()
        return result.result()

    def get_state(self) -> State:
        """Returns the position; called one by one, elements are not read ahead."""
        return self._state if self._watch is None else self._parent.get_state()

    def set_state(self, state: State) -> None:
        """Goes to a position."""
        for _, result in self._pending:
            result.cancel()
        self._parent.set_state(state)
        self._begin(state)

    def close(self) -> None:
        """Ends the threads, and does not wait for calls that are running."""
        self._end_threads()
        super().close()

    def _end_threads(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, state: State) -> None:
        self._state = state
        self._pending: deque[tuple[State, Future[Element]]] = deque()
        self._ended = False

    def _serial(self, watch: Stopwatch) -> Element:
        element = next(self._parent)
        return watch.time(lambda: self._function(element))

    def _submit(self) -> None:
        if self._pool is None and not self._ended:
            self._pool = ThreadPoolExecutor(self._threads, "distlab-map")
            self._process = os.getpid()
            weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
        while self._pool and not self._ended and len(self._pending) < self._threads:
            result: Future[Element]
            try:
                element = next(self._parent)
            except StopIteration:
                self._ended = True
                return
            except Exception as error:  # noqa: BLE001 - raised when it is its turn
                result = Future()
                result.set_exception(error)
            else:
                result = self._pool.submit(self._function, element)
            self._pending.append((self._parent.get_state(), result))
