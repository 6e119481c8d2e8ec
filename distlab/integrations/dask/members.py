"""Which Dask worker is which task of a cluster, as Dask's scheduler tells it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, final
from weakref import WeakKeyDictionary, WeakMethod

from distributed import Client

from distlab.errors import ClusterError

_TOPIC: Final = "all"
"""Dask's scheduler logs there that a worker was added or removed."""

_listening: Final[WeakKeyDictionary[Client, list[Members]]] = WeakKeyDictionary()
"""Who listens to a client's scheduler. A client has one handler for a topic."""


@dataclass(frozen=True)
class Task:
    """A task of the cluster.

    Attributes:
      job: `"worker"` or `"ps"`.
      index: Its number in the job.
    """

    job: str
    index: int

    def __str__(self) -> str:
        """Names the task."""
        return f"{self.job} {self.index}"


class Membership(Protocol):
    """Which process is which task, and who is lost. Its methods run in the event loop."""

    async def start(self) -> None:
        """Begins to follow the tasks.

        Raises:
          ClusterError: A task is not there.
        """

    def stop(self) -> None:
        """Follows them no more."""

    def on_lost(self, watcher: Callable[[Task], None]) -> None:
        """Has a function called with each task that is lost."""

    @property
    def addresses(self) -> list[str]:
        """The addresses of the tasks that are there."""

    async def present(self, task: Task) -> str:
        """Waits until a task is there, and returns its address."""

    def lose(self, task: Task, address: str) -> None:
        """Notes that a task does not answer at an address."""


def weakly(method: Callable[[Task], None]) -> Callable[[Task], None]:
    """Returns what calls a method for as long as its object lives, and keeps none alive.

    Args:
      method: The method, bound to its object.
    """
    known = WeakMethod(method)

    def call(task: Task) -> None:
        living = known()
        if living is not None:
            living(task)

    return call


@final
class Members:
    """The address of each task. Its methods run in the client's event loop.

    A Dask worker that is started anew, with its name or in the place of a lost one, becomes the
    same task.

    Args:
      client: The client of Dask's scheduler.
      names: The name of the Dask worker for each task.
    """

    def __init__(self, client: Client, names: Mapping[Task, Any]) -> None:
        self._client = client
        self._names = dict(names)
        self._addresses: dict[Task, str] = {}
        self._changed = asyncio.Event()
        self._watchers: list[Callable[[Task], None]] = []

    async def start(self) -> None:
        """Looks who is there, and begins to listen who comes and goes.

        Raises:
          ClusterError: A task is not there.
        """
        listening = _listening.setdefault(self._client, [])
        listening.append(self)
        if len(listening) == 1:
            self._client.subscribe_topic(_TOPIC, functools.partial(_tell, listening))
        await self._look()
        missing = [str(task) for task in self._names if task not in self._addresses]
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

    def on_lost(self, watcher: Callable[[Task], None]) -> None:
        """Has a function called with each task that is lost."""
        self._watchers.append(watcher)

    @property
    def addresses(self) -> list[str]:
        """The addresses of the tasks that are there."""
        return list(self._addresses.values())

    async def present(self, task: Task) -> str:
        """Waits until a task is there, and returns its address."""
        while (address := self._addresses.get(task)) is None:
            self._changed.clear()
            await self._changed.wait()
        return address

    def lose(self, task: Task, address: str) -> None:
        """Notes that a task does not answer at an address, until Dask tells of another."""
        if self._addresses.get(task) == address:
            del self._addresses[task]
            for watcher in self._watchers:
                watcher(task)

    def lose_all(self) -> None:
        """Notes that all tasks are lost."""
        for task, address in list(self._addresses.items()):
            self.lose(task, address)

    async def told(self, about: Any) -> None:
        """Learns what happened to a worker of Dask's.

        Args:
          about: What the scheduler logged.
        """
        match about:
            case {"action": "remove-worker", "worker": str() as address}:
                for task in [t for t, known in self._addresses.items() if known == address]:
                    self.lose(task, address)
            case {"action": "add-worker"}:
                await self._look()

    async def _look(self) -> None:
        identity = await scheduler(self._client).identity(n_workers=-1)
        there = {address: about["name"] for address, about in identity["workers"].items()}
        taken = set(self._addresses.values())
        for address, name in there.items():
            if address in taken:
                continue
            lost = [task for task in self._names if task not in self._addresses]
            own = [task for task in lost if str(self._names[task]) == str(name)]
            known = {str(own_name) for own_name in self._names.values()}
            if not own and str(name) not in known:
                own = [task for task in lost if task.job == "worker" and taken]
            if own:
                self._addresses[own[0]] = address
                self._changed.set()


def scheduler(client: Client) -> Any:
    """Returns what calls a client's scheduler."""
    return client.scheduler


async def lose_all(client: Client) -> None:
    """Tells all who listen to a client's scheduler that their tasks are lost, as it ends them."""
    for members in list(_listening.get(client, [])):
        members.lose_all()


async def _tell(listening: list[Members], event: tuple[float, Any]) -> None:
    _, about = event
    for members in list(listening):
        await members.told(about)


def names_in_order(names: Sequence[Any], workers: int, servers: int) -> dict[Task, Any]:
    """Returns the Dask worker of each task: those named after a task, then the others in order.

    Args:
      names: The names of Dask's workers.
      workers: The number of workers to name.
      servers: The number of parameter servers to name.

    Raises:
      ClusterError: There are too few.
    """
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
