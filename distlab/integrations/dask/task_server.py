"""One task of a cluster spec, served at its address: what `distlab.Server.join` does."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import threading
from typing import Any, Final, final

import dask
from distributed.comm.core import Comm
from distributed.core import Server as Node
from distributed.core import Status

from distlab.cluster.server import Server
from distlab.errors import ClusterError, ClusterSpecError, PortInUseError
from distlab.integrations.dask.addressed import host_and_port, url
from distlab.integrations.dask.connection import security
from distlab.integrations.dask.plugin import TaskSessions
from distlab.integrations.dask.settings import SETTINGS

_JOBS: Final = ("worker", "ps")


def serve(server: Server, stopped: threading.Event | None = None) -> None:
    """Serves a task until it is stopped. The calling thread waits, and can be interrupted."""
    if server.job_name not in _JOBS:
        raise ClusterSpecError(
            f"Workers and parameter servers are served, and {server!r} is neither. The program of "
            "the chief makes the ParameterServerStrategy."
        )
    host, port = host_and_port(server.address)
    host = host if _is_loopback(host) else ""
    ended = stopped or threading.Event()
    dask.config.set(SETTINGS)
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)  # what matters is raised
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(_serve(server, host, port, ended))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            failed.append(error)

    serving = threading.Thread(target=run, name=f"distlab-{server.job_name}", daemon=True)
    serving.start()
    try:
        serving.join()
    finally:
        ended.set()
    if failed:
        raise failed[0]


async def _serve(server: Server, host: str, port: int, stopped: threading.Event) -> None:
    node: Any = Node({}, needs_workdir=False, connection_args=_connection_args())
    task = _Task(server, TaskSessions(node))
    node.handlers.update(task.handlers())
    try:
        await node.listen(
            url(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
            **security().get_listen_args("worker"),
        )
    except OSError as error:
        await node.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"{server!r} must listen at its address, where another process listens already. "
                "End that one, or give the task another port in the cluster of all processes."
            ) from None
        raise ClusterError(f"{server!r} can't listen at its address: {error}.") from error
    await node
    await asyncio.to_thread(stopped.wait)
    await node.close()


@final
class _Task:
    """Tells coordinators which task this is, and forgets the sessions of those that go."""

    def __init__(self, server: Server, sessions: TaskSessions) -> None:
        self._server = server
        self._sessions = sessions
        self._stays: dict[str, Comm] = {}

    def handlers(self) -> dict[str, Any]:
        """Returns what answers each message."""
        return {**self._sessions.handlers(), "distlab_stay": self.stay}

    async def stay(self, comm: Comm, session: str) -> Status:
        """Answers a coordinator as long as it lives."""
        self._stays[session] = comm
        try:
            await comm.write({"job": self._server.job_name, "index": self._server.task_index})
            while True:
                await comm.read()
                await comm.write("here")
        except OSError:
            comm.abort()
        finally:
            if self._stays[session] is comm:  # else the coordinator has connected anew
                del self._stays[session]
                await self._sessions.close(session)
        return Status.dont_reply


def _connection_args() -> dict[str, Any]:
    args: dict[str, Any] = security().get_connection_args("worker")
    return args


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
