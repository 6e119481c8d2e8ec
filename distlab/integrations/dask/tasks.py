"""A coordinator's session with workers and parameter servers that are processes."""

from __future__ import annotations

import asyncio
import functools
import sys
import uuid
import weakref
from collections.abc import Callable
from typing import Any, Final, final

from distributed import Client

from distlab.cluster.spec import ClusterSpec
from distlab.coordinator._work_queue import WorkQueue
from distlab.errors import ClusterError, ServerLostError
from distlab.integrations.dask import pickling
from distlab.integrations.dask.closures import ClosuresSent, Sent
from distlab.integrations.dask.connection import (
    Connection,
    event_loop,
    host_and_port,
    own_connection,
    url,
)
from distlab.integrations.dask.dispatch import Dispatch
from distlab.integrations.dask.handlers import TaskPlugin
from distlab.integrations.dask.local_tasks import LocalTasks
from distlab.integrations.dask.members import Members, Presence, Task
from distlab.integrations.dask.resolver import known_workers, names_in_order
from distlab.integrations.dask.servers import ServerCalls
from distlab.variables.remote_storage import Key, RemoteStorage
from distlab.variables.variable import live

_closing: Final[set[asyncio.Future[None]]] = set()  # the event loop keeps no reference


@final
class DaskTasks:
    """A session with workers and parameter servers that are processes (`CoordinatedTasks`)."""

    def __init__(
        self,
        session: str,
        connection: Connection,
        members: Members,
        *,
        workers: int,
        servers: int,
        module: str,
    ) -> None:
        self._session = session
        self._connection = connection
        self._loop = connection.loop
        self.workers = workers
        self.servers = tuple(f"ps {n}" for n in range(servers))
        self._members = members
        self._lost: dict[int, str] = {}
        self._closures = ClosuresSent(session)
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        try:
            self._addresses = started.result()
        except BaseException:
            started.cancel()
            _end(connection, session, members)
            raise
        address_of = functools.partial(_address_of, self._addresses, self._lost)
        self.values = ServerCalls(session, connection.pool, self._loop, address_of)
        about = {
            "workers": workers,
            "servers": self._addresses,
            "paths": list(sys.path),
            "module": module,
        }
        self._dispatch = Dispatch(session, connection.pool, members, self._closures, about)
        members.watch(self._note_lost)

    def sent(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sent:
        """Returns a closure as it travels to a worker."""
        return self._closures.closure(fn, args, kwargs)

    @property
    def strategy(self) -> Any:
        """The strategy."""
        return self._strategy()

    def attach(self, strategy: Any) -> None:
        """Notes the strategy, which results may refer to."""
        self._strategy = weakref.ref(strategy)
        pickling.sessions[self._session] = self
        ended = (self._connection, self._session, self._members)
        weakref.finalize(strategy, _end, *ended).atexit = False

    def variable(self, key: Key, about: dict[str, Any]) -> Any:
        """Returns the variable for a value on a parameter server."""
        for variable in live():
            storage = variable.storage
            if not isinstance(storage, RemoteStorage) or storage.servers is not self.values:
                continue
            if storage.key == key:
                return variable
        raise ClusterError(f"{about['name']} is no variable of the coordinator any more.")

    def serve(self, queue: WorkQueue) -> Callable[[], None]:
        """Runs what a coordinator's queue holds, and returns what ends that."""
        loop, dispatch = self._loop, self._dispatch
        running = asyncio.run_coroutine_threadsafe(dispatch.run(queue, self.workers), loop)

        def wake() -> None:
            if dispatch.idle and not loop.is_closed():
                loop.call_soon_threadsafe(dispatch.wake)

        queue.on_put = wake

        def end() -> None:
            queue.close()
            running.cancel()

        return end

    async def _start(self) -> list[str]:
        await self._members.start()
        servers = [Task("ps", n) for n in range(len(self.servers))]
        return [(await self._members.present(task)).address for task in servers]

    def _note_lost(self, task: Task, place: Presence, seen: str) -> None:
        self._dispatch.note_lost(task, place, seen)
        if task.job == "ps":
            self._lost[task.index] = (
                f"Parameter server {task.index} at {self._addresses[task.index]} is gone, and with "
                "it its variables. Start a new cluster, make a new strategy, and restore the "
                "variables from a checkpoint."
            )
            self._dispatch.fail(ServerLostError(self._lost[task.index]))


def _address_of(addresses: list[str], lost: dict[int, str], server: int) -> str:
    """Returns the address of a server; called for a variable's end, so it keeps no session."""
    if server in lost:
        raise ServerLostError(lost[server])
    return addresses[server]


def _end(connection: Connection, session: str, members: Members) -> None:
    """Has all tasks forget a session whose strategy, with its variables, is gone."""
    pickling.sessions.pop(session, None)

    async def close() -> None:
        addresses = members.addresses
        members.stop()
        calls = [connection.pool(known).distlab_close(session=session) for known in addresses]
        await asyncio.gather(*calls, return_exceptions=True)
        connection.end()

    def begin() -> None:
        closing = asyncio.ensure_future(close())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    if connection.loop.is_running():
        connection.loop.call_soon_threadsafe(begin)


def of_client(client: Client, workers: int, servers: int, module: str) -> DaskTasks:
    """Returns a session with Dask's workers."""
    if client.asynchronous or client.status != "running":
        raise ClusterError(
            "ParameterServerStrategy needs a Dask client that waits and is connected, got "
            f"{client}. Make distributed.Client(address) outside of a coroutine."
        )
    known = known_workers(client).values()
    in_order = names_in_order([about["name"] for about in known], workers, servers)
    tasks = [Task("worker", n) for n in range(workers)] + [Task("ps", n) for n in range(servers)]
    names = dict(zip(tasks, map(str, in_order), strict=True))
    client.register_plugin(TaskPlugin())

    async def find(task: Task) -> Presence:
        scheduler: Any = client.scheduler
        there = (await scheduler.identity(n_workers=-1))["workers"]
        where = {str(about["name"]): address for address, about in there.items()}
        if names[task] not in where and task.job == "worker":
            # Without a name of its own it is called by its address, another one once restarted.
            free = [name for name in where if name not in names.values()]
            names[task] = free[0] if free else names[task]
        if names[task] not in where:
            raise OSError("Dask's scheduler has no such worker")
        cluster = client.cluster
        own = cluster.exit_of(names[task]) if isinstance(cluster, LocalTasks) else None
        return Presence(where[names[task]], own)

    session, own = uuid.uuid4().hex, Connection(client.rpc, event_loop(client), lambda: None)
    members = Members(own.pool, session, names, find)
    return DaskTasks(session, own, members, workers=workers, servers=servers, module=module)


def of_cluster(cluster: ClusterSpec, module: str) -> DaskTasks:
    """Returns a session with the processes that listen at the addresses of a cluster."""
    tasks = {
        Task(job, index): cluster.task_address(job, index)
        for job in ("worker", "ps")
        for index in cluster.task_indices(job)
    }
    for address in tasks.values():
        host_and_port(address)
    session, own = uuid.uuid4().hex, own_connection()

    async def find(task: Task) -> Presence:
        return Presence(url(tasks[task]))

    members = Members(own.pool, session, tasks, find)
    workers, servers = cluster.num_tasks("worker"), cluster.num_tasks("ps")
    return DaskTasks(session, own, members, workers=workers, servers=servers, module=module)
