"""What a Dask worker gets to be a worker or a parameter server of distlab.

A process may serve several strategies, one after another or at once: each has a session.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from distributed import Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import Server
from distributed.protocol.serialize import to_serialize

from distlab.integrations.dask.channel import Channel, Messages
from distlab.integrations.dask.event_loop import event_loop
from distlab.integrations.dask.messages import FAILED, UNKNOWN
from distlab.integrations.dask.packing import packed
from distlab.integrations.dask.sockets import accepted
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
        self._node = node
        self._turn = threading.Lock()  # one closure runs at a time, of whichever session

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Returns what answers each message."""
        return {
            "distlab_versions": self.versions,
            "distlab_serve": self.serve,
            "distlab_values": self.values,
            "distlab_forget": self.forget,
            "distlab_open": self.open,
            "distlab_closures": self.closures,
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

    async def values(self, comm: Comm, session: str) -> None:
        """Answers calls of a session's values, by the socket of a connection."""
        if session not in self._values:
            await comm.write(UNKNOWN)
            return
        own, relay = await accepted(comm)
        own.setblocking(False)
        answer = functools.partial(self._answer, session)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: Messages(answer), own)
        if relay is not None:
            await relay

    def _answer(self, session: str, message: Any, caller: Messages) -> None:
        values = self._values.get(session)
        if values is None:
            caller.send((UNKNOWN, None))
            return
        try:
            answer = "OK", values.answer(*message)
        except Exception as error:  # noqa: BLE001 - whoever asked raises it
            answer = FAILED, error
        caller.send(answer)

    async def forget(self, session: str, numbers: list[int]) -> str:
        """Frees values."""
        if session in self._values:
            self._values[session].forget(numbers)
        return "OK"

    async def open(self, session: str, **about: Any) -> str:
        """Begins to run closures of a session."""
        from distlab.integrations.dask.session import WorkerSession

        if session not in self._sessions:
            node = self._node
            own = WorkerSession(session, node.rpc, event_loop(node), **about)
            self._sessions[session] = own
        return "OK"

    async def closures(self, comm: Comm, session: str) -> None:
        """Runs closures, which come by the socket of a connection, and answers with results."""
        own = self._sessions.get(session)
        if own is None:
            await comm.write(UNKNOWN)
            return
        coordinator, relay = await accepted(comm)
        own.serve(Channel(coordinator), self._turn)
        if relay is not None:
            await relay

    async def withdraw(self, session: str, numbers: list[int]) -> list[int]:
        """Takes back those closures that did not begin, and answers with their numbers."""
        own = self._sessions.get(session)
        return [] if own is None else own.withdraw(numbers)

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
        own = self._sessions.pop(session, None)
        if own is not None:
            own.close()
        return "OK"
