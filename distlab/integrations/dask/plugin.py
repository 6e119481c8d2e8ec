"""What a Dask worker gets to be a worker or a parameter server of distlab.

A process may serve several strategies, one after another or at once: each has a session.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from distributed import Worker, WorkerPlugin
from distributed.protocol.serialize import to_serialize

from distlab.integrations.dask.messages import UNKNOWN
from distlab.integrations.dask.packing import packed, unpacked
from distlab.integrations.dask.values import Values

if TYPE_CHECKING:
    from distlab.integrations.dask.session import WorkerSession

NAME: Final = "distlab"
"""The plugin's name."""


@final
class TaskPlugin(WorkerPlugin):
    """Adds the handlers of a parameter server and of a worker to a Dask worker."""

    name = NAME

    def setup(self, worker: Worker) -> None:
        """Adds the handlers; Dask calls it in each of its workers, for each strategy anew."""
        if "distlab_serve" in worker.handlers:
            return
        task = _Task(worker)
        worker.handlers.update(
            distlab_serve=task.serve,
            distlab_make=task.make,
            distlab_read=task.read,
            distlab_update=task.update,
            distlab_forget=task.forget,
            distlab_open=task.open,
            distlab_run=task.run,
            distlab_close=task.close,
        )


@final
class _Task:
    """The sessions of one process. Its methods run in Dask's event loop, one at a time."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._values: dict[str, Values] = {}
        self._sessions: dict[str, WorkerSession] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distlab-worker")

    async def serve(self, session: str) -> str:
        """Begins to hold values of a session."""
        self._values.setdefault(session, Values())
        return "OK"

    async def make(self, session: str, described: Any, buffer: np.ndarray) -> Any:
        """Keeps a value, and answers with its number."""
        values = self._values.get(session)
        return UNKNOWN if values is None else values.make(unpacked(described, buffer)[0])

    async def read(self, session: str, numbers: list[int]) -> Any:
        """Answers with values."""
        values = self._values.get(session)
        if values is None:
            return UNKNOWN
        described, buffer = packed(values.read(numbers))
        return described, to_serialize(buffer)

    async def update(self, session: str, changes: Any, described: Any, buffer: np.ndarray) -> str:
        """Changes values; all changes of one message are applied together."""
        values = self._values.get(session)
        if values is None:
            return UNKNOWN
        values.update(changes, unpacked(described, buffer))
        return "OK"

    async def forget(self, session: str, numbers: list[int]) -> str:
        """Frees values."""
        if session in self._values:
            self._values[session].forget(numbers)
        return "OK"

    async def open(self, session: str, **about: Any) -> str:
        """Begins to run closures of a session."""
        from distlab.integrations.dask.session import WorkerSession

        if session not in self._sessions:
            self._sessions[session] = WorkerSession(session, self._worker, **about)
        return "OK"

    async def run(self, session: str, **closure: Any) -> Any:
        """Runs a closure in this process's one thread for them, and answers with its result."""
        own = self._sessions.get(session)
        if own is None:
            return UNKNOWN
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: own.run(**closure))

    async def close(self, session: str) -> str:
        """Forgets a session with all that it holds."""
        self._values.pop(session, None)
        own = self._sessions.pop(session, None)
        if own is not None:
            self._thread.submit(own.close)
        return "OK"
