"""Which Dask worker is which task of a cluster, as Dask's scheduler tells it."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, final
from weakref import WeakKeyDictionary, WeakMethod

from distributed import Client

from distlab.errors import ClusterError
from distlab.integrations.dask.local_tasks import LocalTasks
from distlab.launching.exit_codes import in_short

_TOPIC: Final = "all"
"""Dask's scheduler logs there that a worker was added or removed."""

_EXIT_SECONDS: Final = 10.0
"""How long the exit code of a process is waited for whose connection was closed."""

_SILENT: Final = "check-worker-ttl"
"""Dask's scheduler names so what it does as a worker sent no heartbeat in time."""

CLOSED: Final = "connection closed"
_NO_HEARTBEAT: Final = "no heartbeat"

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


Watcher: TypeAlias = Callable[[Task, str], None]
"""Is called with a lost task and with what was seen of that."""


def no_heartbeat(seconds: float) -> str:
    """Says that a process sent nothing for too long."""
    return f"{_NO_HEARTBEAT} for {seconds:g} s"


class Membership(Protocol):
    """Which process is which task, and who is lost. Its methods run in the event loop."""

    async def start(self) -> None:
        """Begins to follow the tasks."""

    def stop(self) -> None:
        """Follows them no more."""

    def on_lost(self, watcher: Watcher) -> None:
        """Has a function called with each task that is lost, and what was seen."""

    @property
    def addresses(self) -> list[str]:
        """The addresses of the tasks that are there."""

    async def present(self, task: Task) -> str:
        """Waits until a task is there, and returns its address."""

    async def why_lost(self, task: Task, seen: str) -> str:
        """Returns why a task was lost, as far as that can be learned."""

    def lose(self, task: Task, address: str, seen: str) -> None:
        """Notes that a task does not answer at an address."""


def weakly(method: Watcher) -> Watcher:
    """Returns what calls a method for as long as its object lives, and keeps none alive."""
    known = WeakMethod(method)

    def call(task: Task, seen: str) -> None:
        living = known()
        if living is not None:
            living(task, seen)

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
        self._watchers: list[Watcher] = []
        self._since: dict[Task, float] = {}  # when each was first seen

    async def start(self) -> None:
        """Looks who is there, and begins to listen who comes and goes."""
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

    def on_lost(self, watcher: Watcher) -> None:
        """Has a function called with each task that is lost, and what was seen."""
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

    async def why_lost(self, task: Task, seen: str) -> str:
        """Returns why a task was lost: how long it was silent, or how its process ended."""
        cluster, since_s = self._client.cluster, self._since.get(task, 0.0)
        if seen == _NO_HEARTBEAT:
            return await self._silence() or seen
        if seen != CLOSED or not isinstance(cluster, LocalTasks):
            return seen
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                code = await cluster.exit_code(str(self._names[task]), since_s)
        except TimeoutError:
            return seen  # the process lives
        return seen if code is None else in_short(code)

    async def _silence(self) -> str:
        """Returns how long a process may be silent; Dask's scheduler keeps what it did."""
        try:
            told: Any = await scheduler(self._client).events(topic="scheduler")
        except OSError:
            return ""
        for _, about in reversed(told):
            match about:
                case {"action": "worker-ttl-timed-out", "ttl": int() | float() as seconds}:
                    return no_heartbeat(seconds)
        return ""

    def lose(self, task: Task, address: str, seen: str) -> None:
        """Notes that a task does not answer at an address, until Dask tells of another."""
        if self._addresses.get(task) == address:
            del self._addresses[task]
            for watcher in self._watchers:
                watcher(task, seen)

    def lose_all(self) -> None:
        """Notes that all tasks are lost."""
        for task, address in list(self._addresses.items()):
            self.lose(task, address, CLOSED)

    async def told(self, about: Any) -> None:
        """Learns what happened to a worker of Dask's."""
        match about:
            case {"action": "remove-worker", "worker": str() as address}:
                silent = str(about.get("stimulus_id")).startswith(_SILENT)
                for task in [t for t, known in self._addresses.items() if known == address]:
                    self.lose(task, address, _NO_HEARTBEAT if silent else CLOSED)
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
                self._since[own[0]] = time.monotonic()
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


def known_workers(client: Client) -> Mapping[str, Any]:
    """Returns what Dask's scheduler knows of its workers, by address.

    A client that waits asks: what `scheduler_info` returns may be replaced meanwhile, every two
    seconds, by what names no worker.
    """
    if client.asynchronous or client.scheduler is None:
        workers: Mapping[str, Any] = client.scheduler_info()["workers"]
    else:
        workers = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
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
