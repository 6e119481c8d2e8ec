"""Handlers that make a Dask worker, or a server of one task, a worker or a parameter server.

A process may serve several strategies, one after another or at once: each has a session.
"""

from __future__ import annotations

import asyncio
import functools
import platform
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, final

from distributed import Worker, WorkerPlugin
from distributed.comm.core import Comm
from distributed.core import Server, Status
from distributed.protocol.serialize import ToPickle
from distributed.threadpoolexecutor import ThreadPoolExecutor

from distlab.errors import ClusterError, ServerLostError
from distlab.integrations.dask.values import Values

if TYPE_CHECKING:
    from distlab.integrations.dask.session import WorkerSession

_BEAT_SECONDS: Final = 2.0

NO_SESSION: Final = "no session"
"""Answer of a worker that was restarted."""


@final
class TaskPlugin(WorkerPlugin):
    """Plugin that adds the handlers to a Dask worker."""

    name = "distlab"

    def setup(self, worker: Worker) -> None:
        """Adds the handlers; Dask calls it in each of its workers, for each strategy anew."""
        if "distlab_run" not in worker.handlers:
            worker.handlers.update(TaskSessions(worker).handlers())


@final
class TaskSessions:
    """The sessions of one process. Its methods run in Dask's event loop."""

    def __init__(self, node: Server, task: str = "") -> None:
        self._node = node
        self._task = task  # as a cluster of addresses names it
        self._stays: dict[str, Comm] = {}
        self._values: dict[str, Values] = {}
        self._sessions: dict[str, WorkerSession] = {}
        # One closure runs at a time, of any session. Its thread is a daemon.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distlab-worker")

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Returns the handler of each message."""
        return {
            "distlab_stay": self.stay,
            "distlab_values": self.values,
            "distlab_open": self.open,
            "distlab_run": self.run,
            "distlab_close": self.close,
        }

    async def stay(self, comm: Comm, session: str, begin: bool) -> Status:
        """Holds a session as long as its coordinator lives, which has a message every 2 s."""
        self._stays[session] = comm
        if begin:
            self._values.setdefault(session, Values())
        try:
            await comm.write({"task": self._task, "versions": versions()})
            while True:
                await asyncio.sleep(_BEAT_SECONDS)
                await comm.write("here")
        except OSError:
            comm.abort()
        finally:
            if self._stays.get(session) is comm:  # else the coordinator has connected anew
                del self._stays[session]
                self.close(session)
        return Status.dont_reply

    def values(self, session: str, verb: str, about: tuple[Any, ...]) -> Any:
        """Returns the answer of a method of `Values`."""
        values = self._values.get(session)
        if values is None and verb == "forget":
            return None
        if values is None:
            raise ServerLostError(
                "A parameter server was restarted, and its variables are lost. Make the strategy "
                "anew, and restore them from a checkpoint."
            )
        return getattr(values, verb)(*about)

    def open(self, session: str, about: Mapping[str, Any]) -> None:
        """Begins to run closures of a session."""
        from distlab.integrations.dask.session import WorkerSession

        if session not in self._sessions:
            self._sessions[session] = WorkerSession(session, self._node, **about)

    async def run(self, session: str, message: Mapping[str, Any]) -> Any:
        """Runs closures in the thread of closures, and returns the answer of each."""
        own = self._sessions.get(session)
        if own is None:
            return NO_SESSION
        loop = asyncio.get_running_loop()
        run = functools.partial(own.run, **message)
        return ToPickle(await loop.run_in_executor(self._thread, run))

    def close(self, session: str) -> str:
        """Forgets a session with all that it holds."""
        self._values.pop(session, None)
        own = self._sessions.pop(session, None)
        if own is not None:
            own.close()
        return "OK"


def versions() -> dict[str, str]:
    """Returns the versions that functions, which travel as bytecode, need to be the same."""
    return {
        "distlab": metadata.version("distlab"),
        "Python": _minor(platform.python_version()),
        "JAX": _minor(metadata.version("jax")),
        "cloudpickle": _minor(metadata.version("cloudpickle")),
    }


def require_same(theirs: Mapping[str, str], who: str) -> None:
    """Checks that a task has the versions of this process."""
    other = [
        f"{name} {theirs.get(name, 'unknown')} there and {version} here"
        for name, version in versions().items()
        if theirs.get(name) != version
    ]
    if other:
        raise ClusterError(
            f"{who} has other versions than the coordinator: {'; '.join(other)}. Install the same."
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
