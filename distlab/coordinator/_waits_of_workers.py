"""Scheduled functions that wait for the results of others, and so may wait for themselves."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import final

from distlab.errors import ContextError


@final
class WaitsOfWorkers:
    """Which workers wait in a function that they run, and for what. Its user has a lock.

    A worker that waits runs nothing else. With several, others may run what it waits for.

    Args:
      workers: The number of workers.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._numbers: dict[int, int] = {}
        self._awaited: dict[int, threading.Event] = {}

    def runs_as(self, worker: int) -> None:
        """Notes that the calling thread is a worker's."""
        self._numbers[threading.get_ident()] = worker

    @contextlib.contextmanager
    def waiting(self, ended: threading.Event) -> Iterator[None]:
        """Notes that the calling thread waits, where it is a worker's."""
        worker = self._numbers.get(threading.get_ident())
        if worker is None:
            yield
            return
        self._awaited[worker] = ended
        try:
            yield
        finally:
            del self._awaited[worker]

    def require_end(
        self,
        ended: threading.Event,
        running: Mapping[threading.Event, int],
        *,
        may_be_cancelled: bool,
    ) -> None:
        """Checks that what the calling thread waits for can come."""
        worker = self._numbers.get(threading.get_ident())
        if worker is None or ended.is_set():
            return
        if self._comes_back(worker, ended, running):
            raise ContextError(
                f"A function that worker {worker} runs waits for its own result, or for that of a "
                "function that waits for it. Return what others need, and call fetch outside, "
                "after schedule."
            )
        stuck = [number for number, event in self._awaited.items() if not event.is_set()]
        if len(stuck) == self._workers and not may_be_cancelled:
            raise ContextError(
                f"A function that worker {worker} runs waits for another one, which no worker is "
                f"left to run: {len(stuck)} of {self._workers} wait. Call fetch outside, after "
                "schedule, or call the other function itself in place of scheduling it."
            )

    def _comes_back(
        self, worker: int, ended: threading.Event, running: Mapping[threading.Event, int]
    ) -> bool:
        """Returns whether what a worker waits for waits for the worker."""
        awaited: threading.Event | None = ended
        for _ in range(self._workers + 1):
            if awaited is None or awaited not in running:
                return False
            if running[awaited] == worker:
                return True
            awaited = self._awaited.get(running[awaited])
        return False
