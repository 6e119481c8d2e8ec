"""What a Dask worker gets to be a worker or a parameter server of distlab.

A process may serve several strategies, one after another or at once: each has a session.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from distributed import Worker, WorkerPlugin
from distributed.core import Server
from distributed.protocol.serialize import to_serialize
from distributed.threadpoolexecutor import ThreadPoolExecutor

from distlab.integrations.dask.messages import UNKNOWN, WITHDRAWN
from distlab.integrations.dask.packing import from_text, packed, unpacked
from distlab.integrations.dask.server_connections import ThreadConnections
from distlab.integrations.dask.turns import Order, Turns
from distlab.integrations.dask.values import Values
from distlab.integrations.dask.versions import versions

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
        if "distlab_serve" not in worker.handlers:
            worker.handlers.update(TaskSessions(worker).handlers())


@final
class TaskSessions:
    """The sessions of one process. Its methods run in Dask's event loop, one at a time.

    Args:
      node: What listens in this process: a Dask worker, or a server of one task.
    """

    def __init__(self, node: Server) -> None:
        self._values: dict[str, Values] = {}
        self._sessions: dict[str, WorkerSession] = {}
        self._given: dict[tuple[str, int], Future[Any]] = {}
        self._turns: dict[str, Turns] = {}
        self._connections = ThreadConnections(node)
        # Its thread is a daemon: a process can end while it runs a closure.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distlab-worker")

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Returns what answers each message."""
        return {
            "distlab_versions": self.versions,
            "distlab_serve": self.serve,
            "distlab_make": self.make,
            "distlab_read": self.read,
            "distlab_update": self.update,
            "distlab_forget": self.forget,
            "distlab_open": self.open,
            "distlab_run": self.run,
            "distlab_withdraw": self.withdraw,
            "distlab_own": self.own,
            "distlab_close": self.close,
        }

    async def versions(self) -> dict[str, str]:
        """Answers with the versions that must be those of the coordinator."""
        return versions()

    async def serve(self, session: str) -> str:
        """Begins to hold values of a session."""
        self._values.setdefault(session, Values())
        return "OK"

    async def make(self, session: str, described: str, buffer: np.ndarray) -> Any:
        """Keeps a value, and answers with its number."""
        values = self._values.get(session)
        return UNKNOWN if values is None else values.make(unpacked(described, buffer)[0])

    async def read(self, session: str, numbers: str) -> Any:
        """Answers with values."""
        values = self._values.get(session)
        if values is None:
            return UNKNOWN
        described, buffer = packed(values.read(from_text(numbers)))
        return described, to_serialize(buffer)

    async def update(self, session: str, changes: str, described: str, buffer: np.ndarray) -> str:
        """Changes values; all changes of one message are applied together."""
        values = self._values.get(session)
        if values is None:
            return UNKNOWN
        values.update(from_text(changes), unpacked(described, buffer))
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
            self._thread.submit(self._connections.adopt)
            self._sessions[session] = WorkerSession(session, self._connections, **about)
        return "OK"

    async def run(self, session: str, order: list[Any], **closure: Any) -> Any:
        """Runs a closure in this process's one thread for them, and answers with its result.

        The next closures wait for that thread, so that it is never idle between two of them.
        """
        own = self._sessions.get(session)
        if own is None:
            return UNKNOWN
        given = Order(*order)
        await self._turns.setdefault(session, Turns()).wait(given)
        key = session, given.number
        run = functools.partial(own.run, given, **closure)
        begun = self._given[key] = self._thread.submit(run)
        try:
            answer, changing = await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            if begun.cancelled():
                return WITHDRAWN
            raise
        finally:
            del self._given[key]
        return await own.settled(answer, changing)

    async def withdraw(self, session: str, numbers: list[int]) -> str:
        """Takes back those closures that did not begin; `run` answers for each."""
        for number in numbers:
            if (session, number) in self._given:
                self._given[session, number].cancel()
        return "OK"

    async def own(self, session: str, number: int) -> Any:
        """Answers with the value of a per-worker variable that closures have used here."""
        own = self._sessions.get(session)
        value = None if own is None else await asyncio.to_thread(own.own_value, number)
        if value is None:
            return UNKNOWN
        described, buffer = packed([value])
        return described, to_serialize(buffer)

    async def close(self, session: str) -> str:
        """Forgets a session with all that it holds."""
        self._values.pop(session, None)
        self._turns.pop(session, None)
        own = self._sessions.pop(session, None)
        if own is not None:
            self._thread.submit(own.close)
        if not self._sessions:
            self._thread.submit(self._connections.release)
        return "OK"
