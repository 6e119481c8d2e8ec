"""Tasks that listen at the addresses of a cluster spec, as their coordinator knows them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final, final

from distributed.comm.core import Comm, connect

from distlab.errors import ClusterError
from distlab.integrations.dask.connection import Connection, host_and_port, security, url
from distlab.integrations.dask.members import CLOSED, NO_HEARTBEAT, Membership, Task
from distlab.processes.notices import announced

_CONNECT_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.2
_SILENT_SECONDS: Final = 25.0
"""A process that is stopped counts as lost then."""


@final
class AddressedMembers(Membership):
    """The address of each task that is there. Its methods run in the connection's event loop.

    One connection to each task stays open. As it ends, the task is lost, and the coordinator tries
    its address until a process listens there again; and the task forgets the session.
    """

    def __init__(
        self, connection: Connection, session: str, addresses: Mapping[Task, str], seconds: float
    ) -> None:
        super().__init__(connection.pool)
        self._session = session
        self._listed = dict(addresses)
        self._seconds = seconds
        self._why: dict[Task, BaseException] = {}  # why a task is not there
        self._refused: ClusterError | None = None
        self._followers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Waits until all tasks are there."""
        self._followers = [asyncio.ensure_future(self._follow(task)) for task in self._listed]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                with announced(self._waits_for, self._seconds):
                    while self._absent() and self._refused is None:
                        self._changed.clear()
                        await self._changed.wait()
        if self._refused is not None:
            raise self._refused
        if self._absent():
            raise ClusterError(self._missing())

    def stop(self) -> None:
        """Closes the connections that stay open."""
        self._watchers.clear()
        for follower in self._followers:
            follower.cancel()

    async def _follow(self, task: Task) -> None:
        address = url(self._listed[task])
        while True:
            try:
                await _try(self._listed[task])
                comm = await connect(
                    address, timeout=_CONNECT_SECONDS, **security().get_connection_args("client")
                )
            except OSError as error:
                self._why[task] = error
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            seen = CLOSED
            try:
                await self._greet(task, comm)
                self.came(task, address)
                while True:
                    await _message(comm)
            except TimeoutError as error:
                self._why[task] = error
                seen = NO_HEARTBEAT
            except OSError as error:
                self._why[task] = error
            except ClusterError as error:
                self._refused = error
                self._changed.set()
            finally:
                comm.abort()
            self.lose(task, address, seen)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _greet(self, task: Task, comm: Comm) -> None:
        """Begins the messages of a task, of which the first one names it."""
        await comm.write({"op": "distlab_stay", "session": self._session})
        match await _message(comm):
            case {"job": task.job, "index": task.index}:
                return
            case {"job": job, "index": index}:
                raise ClusterError(
                    f"{task} of the cluster is at {self._listed[task]}, where {job} {index} "
                    "listens. Give all processes the same cluster, and each its own task."
                )
            case _:
                raise ClusterError(
                    f"{task} of the cluster is at {self._listed[task]}, where no Server of distlab "
                    "listens. Start one there with this address: distlab server."
                )

    def _absent(self) -> list[Task]:
        return [task for task in self._listed if task not in self._there]

    def _waits_for(self) -> str:
        return ", ".join(f"{task} to listen at {self._listed[task]}" for task in self._absent())

    def _missing(self) -> str:
        missing = self._absent()
        whys = [f"{task} at {self._listed[task]} ({self._why.get(task)})" for task in missing]
        jobs = f"distlab server --job {missing[0].job} --index {missing[0].index}"
        return (
            f"Not reached within {self._seconds:g} s: {', '.join(whys)}. Start a process for each "
            f"task, which makes distlab.Server(...) and calls join(), or runs {jobs}; and look "
            "whether its address can be reached from here."
        )


async def _try(address: str) -> None:
    """Tries to connect once; Dask would try again, and draw random numbers of the program's."""
    async with asyncio.timeout(_CONNECT_SECONDS):
        _, writer = await asyncio.open_connection(*host_and_port(address))
    writer.close()


async def _message(comm: Comm) -> Any:
    async with asyncio.timeout(_SILENT_SECONDS):
        return await comm.read()
