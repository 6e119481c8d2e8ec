"""Tasks that listen at the addresses of a cluster spec, as their coordinator knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, final

from distributed.comm.core import Comm, connect

from distlab.errors import ClusterError, ClusterSpecError
from distlab.integrations.dask.connection import Connection, security
from distlab.integrations.dask.members import CLOSED, Task, Watcher, no_heartbeat
from distlab.processes.notices import announced
from distlab.text.shown import shown

_CONNECT_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.2
_PING_SECONDS: Final = 5.0
_SILENT_SECONDS: Final = 25.0
"""A process that is stopped is lost then, and counts as a lost one after half a minute."""


@final
class AddressedMembers:
    """The address of each task that is there. Its methods run in the connection's event loop.

    One connection to each task stays open. As it ends, the task is lost, and the coordinator tries
    its address until a process listens there again; and the task forgets the session.

    Args:
      connection: The connection with the tasks.
      session: The session's name.
      addresses: Where each task listens.
      seconds: How long `start` waits for them.
    """

    def __init__(
        self, connection: Connection, session: str, addresses: Mapping[Task, str], seconds: float
    ) -> None:
        self._pool = connection.pool
        self._session = session
        self._listed = dict(addresses)
        self._seconds = seconds
        self._there: dict[Task, str] = {}
        self._why: dict[Task, BaseException] = {}  # why a task is not there
        self._refused: ClusterError | None = None
        self._comms: dict[Task, Comm] = {}
        self._followers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._watchers: list[Watcher] = []

    async def start(self) -> None:
        """Waits until all tasks are there."""
        self._followers = [asyncio.ensure_future(self._follow(task)) for task in self._listed]
        try:
            async with asyncio.timeout(self._seconds):
                with announced(self._waits_for, self._seconds):
                    while len(self._there) < len(self._listed) and self._refused is None:
                        self._changed.clear()
                        await self._changed.wait()
        except TimeoutError:
            pass
        if self._refused is not None:
            raise self._refused
        if len(self._there) < len(self._listed):
            raise ClusterError(self._missing())

    def stop(self) -> None:
        """Closes the connections that stay open."""
        self._watchers.clear()
        for follower in self._followers:
            follower.cancel()

    def on_lost(self, watcher: Watcher) -> None:
        """Has a function called with each task that is lost, and what was seen."""
        self._watchers.append(watcher)

    @property
    def addresses(self) -> list[str]:
        """The addresses of the tasks that are there."""
        return list(self._there.values())

    async def present(self, task: Task) -> str:
        """Waits until a task is there, and returns its address."""
        while (address := self._there.get(task)) is None:
            self._changed.clear()
            await self._changed.wait()
        return address

    async def why_lost(self, task: Task, seen: str) -> str:
        """Returns why a task was lost: what was seen is all that is known."""
        del task
        return seen

    def lose(self, task: Task, address: str, seen: str) -> None:
        """Notes that a task does not answer, until it is connected anew."""
        if self._there.get(task) != address:
            return
        del self._there[task]
        self._comms[task].abort()
        self._pool.remove(address)
        for watcher in self._watchers:
            watcher(task, seen)

    async def _follow(self, task: Task) -> None:
        address = url(self._listed[task])
        while True:
            try:
                await _try(self._listed[task])
                comm = await connect(
                    address, timeout=_CONNECT_SECONDS, **security().get_connection_args("client")
                )
            except (OSError, TimeoutError) as error:
                self._why[task] = error
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            seen = CLOSED
            try:
                await self._greet(task, comm)
                self._comms[task] = comm
                self._there[task] = address
                self._changed.set()
                await _until_it_ends(comm)
            except TimeoutError as error:
                self._why[task] = error
                seen = no_heartbeat(_SILENT_SECONDS)
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
        """Asks who listens at an address."""
        await comm.write({"op": "distlab_stay", "session": self._session})
        async with asyncio.timeout(_SILENT_SECONDS):
            answer: Any = await comm.read()
        match answer:
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
        whys = [
            f"{task} at {self._listed[task]} ({_cause(self._why.get(task))})" for task in missing
        ]
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


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the parts of an address."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClusterSpecError(
            "A task that is a process has an address with a port, as in host:2222, and one is at "
            f"{shown(address)}. Write its port in the cluster."
        )
    return host.strip("[]"), int(port)


def url(address: str) -> str:
    """Returns an address of a cluster spec as Dask writes it."""
    return f"{'tls' if security().require_encryption else 'tcp'}://{address}"


async def _until_it_ends(comm: Comm) -> None:
    """Asks again and again whether a task is there."""
    answer = asyncio.ensure_future(comm.read())
    try:
        while True:
            await comm.write("there?")
            await asyncio.wait([answer], timeout=_SILENT_SECONDS)
            if not answer.done():
                raise TimeoutError(f"no answer for {_SILENT_SECONDS:g} s")
            answer.result()
            # A task sends nothing unasked: what comes before the next question is the end.
            answer = asyncio.ensure_future(comm.read())
            await asyncio.wait([answer], timeout=_PING_SECONDS)
            if answer.done():
                answer.result()
    finally:
        answer.cancel()


def _cause(error: BaseException | None) -> str:
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
