"""Messages that the workers' processes pass each other while they read."""

from __future__ import annotations

import time
from typing import Final, final

from distlab.errors import WorkerError
from distlab.processes.group import ProcessGroup, Worker

_SLICE_SECONDS: Final = 0.2
"""How long a wait lasts before it looks whether it was closed, or a worker is lost."""


@final
class Rounds:
    """Messages that each worker sends to all others, one in each round, from any thread.

    Args:
      processes: The workers' processes.
      place: The name of these rounds in the key-value store.

    Attributes:
      processes: The workers' processes.
    """

    def __init__(self, processes: ProcessGroup, place: str) -> None:
        self.processes, self._place = processes, place
        self._round = 0
        self._closed = False
        self._failure: WorkerError | None = None

    def exchange(self, message: bytes) -> list[bytes]:
        """Returns the messages of all workers in this round."""
        if self._failure is not None:
            raise self._failure  # the others may be a round ahead, so no other one can follow
        processes, number = self.processes, self._round
        place, own = f"{self._place}/{number}/", processes.index
        processes.kv.set(f"{place}{own}", message.decode())
        limit = processes.timeout
        until = None if limit is None else time.monotonic() + limit
        try:
            found = [
                message
                if worker.index == own
                else self._awaited(f"{place}{worker.index}", worker, until)
                for worker in processes.workers
            ]
        except WorkerError as error:
            self._failure = error
            raise
        if number:  # all have sent this round's message, so they have read the last round's
            processes.kv.delete(f"{self._place}/{number - 1}/{own}")
        self._round += 1
        return found

    def close(self) -> None:
        """Ends a wait in another thread."""
        self._closed = True

    def _awaited(self, key: str, worker: Worker, until: float | None) -> bytes:
        while not self._closed:
            self.processes.check()
            text = self.processes.kv.awaited(key, _SLICE_SECONDS)
            if text is not None:
                return text.encode()
            if self.processes.has_left(worker) and self.processes.kv.find(key) is None:
                raise self._error(worker, "Its program has ended without reading")
            if until is not None and time.monotonic() >= until:
                seconds = f"{self.processes.timeout:g} seconds"
                raise self._error(worker, f"It did not come within {seconds} to reading")
        raise StopIteration

    def _error(self, worker: Worker, what: str) -> WorkerError:
        return WorkerError(
            worker.name,
            worker.host,
            f"{what} batch {self._round} of a distributed dataset, and all workers take each step "
            "together. Run the same loop on each, and give communication_options a larger "
            "timeout_seconds where one is only slow.",
        )
