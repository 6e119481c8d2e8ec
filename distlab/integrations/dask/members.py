"""The tasks of a cluster, as their coordinator knows them: one connection to each stays open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final
from weakref import WeakMethod, WeakSet

from distributed.comm.core import Comm, connect
from distributed.core import ConnectionPool

from distlab.errors import ClusterError, ClusterSpecError
from distlab.integrations.dask.connection import host_and_port
from distlab.integrations.dask.handlers import require_same
from distlab.launching.exit_codes import in_short
from distlab.processes.joining import start_limit
from distlab.processes.notices import announced

_CONNECT_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.2
_EXIT_SECONDS: Final = 10.0
_SILENT_SECONDS: Final = 25.0
"""A process that is stopped counts as lost then."""

CLOSED: Final = "connection closed"
NO_HEARTBEAT: Final = "no heartbeat"


@dataclass(frozen=True)
class Task:
    """A task of the cluster."""

    job: Literal["worker", "ps"]
    index: int

    def __str__(self) -> str:
        """Names the task."""
        return f"{self.job} {self.index}"


class Presence(NamedTuple):
    """The address of a task, and the exit code to come of a process of this machine."""

    address: str
    exit: asyncio.Future[int] | None = None


Watcher: TypeAlias = Callable[[Task, Presence, str], None]
"""Called with a lost task, with where it was and with what was seen of that."""

Find: TypeAlias = Callable[[Task], Awaitable[Presence]]
"""Returns where a task is; raises an `OSError` where nothing is known of it."""

_all: Final[WeakSet[Members]] = WeakSet()


@final
class Members:
    """The place of each task that is there. Its methods run in the connections' event loop.

    As the connection to a task ends, the task is lost, and forgets the session; the coordinator
    looks for it until a process serves it again.
    """

    def __init__(
        self, pool: ConnectionPool, session: str, known_as: Mapping[Task, str], find: Find
    ) -> None:
        self.pool = pool
        self._session = session
        self._known_as = dict(known_as)
        self._find = find
        self._there: dict[Task, Presence] = {}
        self._begun: set[Task] = set()
        self._changed = asyncio.Event()
        self._comms: dict[Task, Comm] = {}
        self._watcher: WeakMethod[Watcher] | None = None
        self._why: dict[Task, BaseException] = {}  # why a task is not there
        self._refused: ClusterError | ClusterSpecError | None = None
        self._followers: list[asyncio.Task[None]] = []
        _all.add(self)

    async def start(self) -> None:
        """Waits until all tasks are there."""
        seconds = start_limit()
        self._followers = [asyncio.ensure_future(self._follow(task)) for task in self._known_as]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                with announced(self._waits_for, seconds):
                    while self._absent() and self._refused is None:
                        self._changed.clear()
                        await self._changed.wait()
        if self._refused is not None:
            raise self._refused
        if missing := self._absent():
            whys = [f"{task} at {self._known_as[task]} ({self._why.get(task)})" for task in missing]
            jobs = f"distlab server --job {missing[0].job} --index {missing[0].index}"
            raise ClusterError(
                f"Not reached within {seconds:g} s: {', '.join(whys)}. Start a process for each "
                f"task, which makes distlab.Server(...) and calls join(), or runs {jobs}; and look "
                "whether its address can be reached from here."
            )

    def stop(self) -> None:
        """Closes the connections that stay open."""
        self._watcher = None
        for follower in self._followers:
            follower.cancel()

    def watch(self, watcher: Watcher) -> None:
        """Has a method called with each task that is lost, as long as its object lives."""
        self._watcher = WeakMethod(watcher)

    @property
    def addresses(self) -> list[str]:
        """The addresses of the tasks that are there."""
        return [place.address for place in self._there.values()]

    async def present(self, task: Task) -> Presence:
        """Waits until a task is there, and returns its place."""
        while (place := self._there.get(task)) is None:
            self._changed.clear()
            await self._changed.wait()
        return place

    def lose(self, task: Task, place: Presence, seen: str) -> None:
        """Notes that a task does not answer at a place, and ends the calls that wait for it."""
        if self._there.get(task) is not place:
            return
        del self._there[task]
        for comm in [self._comms.pop(task), *self.pool.occupied.get(place.address, ())]:
            comm.abort()
        self.pool.remove(place.address)
        watcher = None if self._watcher is None else self._watcher()
        if watcher is not None:
            watcher(task, place, seen)

    def lose_all(self) -> None:
        """Notes that all tasks are lost, and looks for none."""
        for task, place in list(self._there.items()):
            self.lose(task, place, CLOSED)
        self.stop()

    async def _follow(self, task: Task) -> None:
        while True:
            try:
                place = await self._find(task)
                await _try(place.address)
                arguments = self.pool.connection_args
                comm = await connect(place.address, timeout=_CONNECT_SECONDS, **arguments)
            except OSError as error:
                self._why[task] = error
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except ClusterSpecError as error:  # of a client in this process, say
                self._refused = error
                self._changed.set()
                return
            seen = CLOSED
            try:
                await self._greet(task, comm)
                self._there[task], self._comms[task] = place, comm
                self._changed.set()
                while True:
                    await _message(comm)
            except OSError as error:
                self._why[task] = error
                seen = NO_HEARTBEAT if isinstance(error, TimeoutError) else CLOSED
            except ClusterError as error:
                self._refused = error
                self._changed.set()
            finally:
                comm.abort()
            self.lose(task, place, seen)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _greet(self, task: Task, comm: Comm) -> None:
        """Begins the messages of a task; one that comes back keeps no values of before."""
        begin = task not in self._begun
        await comm.write({"op": "distlab_stay", "session": self._session, "begin": begin})
        match await _message(comm):
            case {"task": own, "versions": versions}:
                if own not in ("", str(task)):
                    raise ClusterError(
                        f"{task} of the cluster is at {self._known_as[task]}, where {own} listens. "
                        "Give all processes the same cluster, and each its own task."
                    )
                require_same(versions, f"{task} at {self._known_as[task]}")
                self._begun.add(task)
            case _:
                raise OSError("no Server of distlab listens there")

    def _absent(self) -> list[Task]:
        return [task for task in self._known_as if task not in self._there]

    def _waits_for(self) -> str:
        return ", ".join(f"{task} to listen at {self._known_as[task]}" for task in self._absent())


async def why_lost(place: Presence, seen: str) -> str:
    """Returns why a task was lost: with a process of this machine, how it ended."""
    if seen != CLOSED or place.exit is None:
        return seen
    await asyncio.wait([place.exit], timeout=_EXIT_SECONDS)
    return in_short(place.exit.result()) if place.exit.done() else seen


async def lose_all(pool: ConnectionPool) -> None:
    """Has all who know tasks by their connections lose them, as the connections end."""
    for members in list(_all):
        if members.pool is pool:
            members.lose_all()


async def _try(address: str) -> None:
    """Tries to connect once; Dask would try again, and draw random numbers of the program's."""
    async with asyncio.timeout(_CONNECT_SECONDS):
        _, writer = await asyncio.open_connection(*host_and_port(address.rpartition("/")[2]))
    writer.close()


async def _message(comm: Comm) -> Any:
    async with asyncio.timeout(_SILENT_SECONDS):
        return await comm.read()
