"""The Dask worker of each task of a cluster, as Dask's scheduler knows them."""

from __future__ import annotations

import abc
import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final
from weakref import WeakKeyDictionary, WeakMethod

from distributed import Client
from distributed.core import ConnectionPool

from distlab.errors import ClusterError
from distlab.integrations.dask.local_tasks import LocalTasks
from distlab.launching.exit_codes import in_short

_TOPIC: Final = "all"
"""Topic of Dask's scheduler on which it logs that a worker was added or removed."""

_EXIT_SECONDS: Final = 10.0
_SILENT: Final = "check-worker-ttl"
"""The scheduler's name for the removal of a worker that sent no heartbeat in time."""

CLOSED: Final = "connection closed"
NO_HEARTBEAT: Final = "no heartbeat"

_listening: Final[WeakKeyDictionary[Client, list[Members]]] = WeakKeyDictionary()
"""A client has one handler for a topic, which these share."""


@dataclass(frozen=True)
class Task:
    """A task of the cluster."""

    job: Literal["worker", "ps"]
    index: int

    def __str__(self) -> str:
        """Names the task."""
        return f"{self.job} {self.index}"


Watcher: TypeAlias = Callable[[Task, str], None]
"""Called with a lost task and with what was seen of that."""


class Membership(abc.ABC):
    """The address of each task that is there. Its methods run in the event loop."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._there: dict[Task, str] = {}
        self._changed = asyncio.Event()
        self._watchers: list[WeakMethod[Watcher]] = []

    @abc.abstractmethod
    async def start(self) -> None:
        """Begins to follow the tasks, once all are there."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Follows them no more."""

    async def why_lost(self, task: Task, seen: str) -> str:
        """Returns why a task was lost, as far as that can be learned."""
        del task
        return seen

    def on_lost(self, watcher: Watcher) -> None:
        """Has a method called with each task that is lost, as long as its object lives."""
        self._watchers.append(WeakMethod(watcher))

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

    def came(self, task: Task, address: str) -> None:
        """Notes that a task is there."""
        self._there[task] = address
        self._changed.set()

    def lose(self, task: Task, address: str, seen: str) -> None:
        """Notes that a task does not answer at an address, and ends the calls that wait for it."""
        if self._there.get(task) != address:
            return
        del self._there[task]
        for comm in list(self._pool.occupied.get(address, ())):
            comm.abort()
        self._pool.remove(address)
        for reference in list(self._watchers):
            watcher = reference()
            if watcher is not None:
                watcher(task, seen)


@final
class Members(Membership):
    """The address of each task of a Dask cluster. Its methods run in the client's event loop.

    A Dask worker that is started anew, with its name or in the place of a lost one, becomes the
    same task.
    """

    def __init__(self, client: Client, names: Mapping[Task, Any]) -> None:
        super().__init__(client.rpc)
        self._client = client
        self._names = dict(names)
        self._exits: dict[Task, asyncio.Future[int]] = {}

    async def start(self) -> None:
        """Looks who is there, and begins to listen who comes and goes."""
        listening = _listening.setdefault(self._client, [])
        listening.append(self)
        if len(listening) == 1:
            self._client.subscribe_topic(_TOPIC, functools.partial(_hear, listening))
        await self._look()
        missing = [str(task) for task in self._names if task not in self._there]
        if missing:
            raise ClusterError(
                f"{', '.join(missing)}: Dask's scheduler at {scheduler(self._client).address} has "
                "no such worker. Start as many Dask workers as the cluster has tasks."
            )

    def stop(self) -> None:
        """Listens no more."""
        self._watchers.clear()
        listening = _listening.get(self._client, [])
        if self in listening:
            listening.remove(self)

    async def why_lost(self, task: Task, seen: str) -> str:
        """Returns why a task was lost: with a process of this machine, how it ended."""
        if seen != CLOSED or task not in self._exits:
            return seen
        await asyncio.wait([self._exits[task]], timeout=_EXIT_SECONDS)
        ended = self._exits[task]
        return in_short(ended.result()) if ended.done() else seen

    def lose_all(self) -> None:
        """Notes that all tasks are lost."""
        for task, address in list(self._there.items()):
            self.lose(task, address, CLOSED)

    async def hear(self, about: Any) -> None:
        """Notes that a worker of Dask's came or went."""
        match about:
            case {"action": "remove-worker", "worker": str() as address}:
                silent = str(about.get("stimulus_id")).startswith(_SILENT)
                for task in [t for t, known in self._there.items() if known == address]:
                    self.lose(task, address, NO_HEARTBEAT if silent else CLOSED)
            case {"action": "add-worker"}:
                await self._look()

    async def _look(self) -> None:
        identity = await scheduler(self._client).identity(n_workers=-1)
        there = {address: about["name"] for address, about in identity["workers"].items()}
        taken = set(self._there.values())
        known = {str(name) for name in self._names.values()}
        for address, name in there.items():
            if address in taken:
                continue
            lost = [task for task in self._names if task not in self._there]
            own = [task for task in lost if str(self._names[task]) == str(name)]
            if not own and str(name) not in known:
                own = [task for task in lost if task.job == "worker" and taken]
            if own:
                cluster = self._client.cluster
                if isinstance(cluster, LocalTasks):
                    self._exits[own[0]] = cluster.exit_of(str(name))
                self.came(own[0], address)


def scheduler(client: Client) -> Any:
    """Returns the calls of a client's scheduler."""
    return client.scheduler


async def lose_all(client: Client) -> None:
    """Has all who listen to a client's scheduler lose their tasks, as the client ends them."""
    for members in list(_listening.get(client, [])):
        members.lose_all()


async def _hear(listening: list[Members], event: tuple[float, Any]) -> None:
    _, about = event
    for members in list(listening):
        await members.hear(about)


def known_workers(client: Client) -> Mapping[str, Any]:
    """Returns what the scheduler knows of its workers, by address; `scheduler_info` may be late."""
    workers: Mapping[str, Any] = client.sync(scheduler(client).identity, n_workers=-1)["workers"]
    return workers


def names_in_order(names: Sequence[Any], workers: int, servers: int) -> dict[Task, Any]:
    """Returns the Dask worker of each task: those named after a task, then the others in order."""
    tasks = [Task("worker", n) for n in range(workers)] + [Task("ps", n) for n in range(servers)]
    if len(names) < len(tasks):
        raise ClusterError(
            f"The cluster has {workers} workers and {servers} parameter servers, and Dask's "
            f"scheduler has {len(names)} workers: {sorted(map(str, names))}. Start more, or ask "
            "for fewer."
        )
    of_task = {f"{task.job}-{task.index}": task for task in tasks}
    named = {of_task[str(name)]: name for name in names if str(name) in of_task}
    rest = iter(sorted((n for n in names if n not in named.values()), key=_natural))
    return {task: named[task] if task in named else next(rest) for task in tasks}


def _natural(name: Any) -> tuple[int, Any]:
    return (0, name) if isinstance(name, int) else (1, str(name))
