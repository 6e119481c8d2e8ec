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
from distlab.integrations.dask.addressed import AddressedMembers
from distlab.integrations.dask.closures import ClosuresSent, Sent
from distlab.integrations.dask.connection import (
    Connection,
    host_and_port,
    own_connection,
    shared_connection,
)
from distlab.integrations.dask.dispatch import Dispatch, begun
from distlab.integrations.dask.handlers import TaskPlugin
from distlab.integrations.dask.members import (
    Members,
    Membership,
    Task,
    known_workers,
    names_in_order,
)
from distlab.integrations.dask.servers import ServerCalls
from distlab.processes.joining import start_limit
from distlab.variables.remote_storage import Key, RemoteStorage
from distlab.variables.variable import live

_ANSWER_SECONDS: Final = 120.0
_closing: Final[set[asyncio.Future[None]]] = set()  # the event loop keeps no reference


@final
class DaskTasks:
    """A session with workers and parameter servers that are processes (`CoordinatedTasks`)."""

    def __init__(
        self,
        session: str,
        connection: Connection,
        members: Membership,
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
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                addresses = await self._greet()
        except TimeoutError as error:
            raise ClusterError(
                f"The workers and parameter servers have not all answered within "
                f"{_ANSWER_SECONDS:g} s. Look whether one of their processes is stopped."
            ) from error
        self._members.on_lost(self._note_lost)
        return addresses

    async def _greet(self) -> list[str]:
        """Begins the session on all tasks, and returns the servers' addresses."""
        tasks = [Task("worker", n) for n in range(self.workers)]
        tasks += [Task("ps", n) for n in range(len(self.servers))]
        addresses = []
        for task in tasks:
            addresses.append(await self._members.present(task))
            await begun(self._connection.pool, task, addresses[-1], "serve", session=self._session)
        return addresses[self.workers :]

    def _note_lost(self, task: Task, reason: str) -> None:
        del reason
        if task.job == "ps":
            self._lost[task.index] = (
                f"Parameter server {task.index} at {self._addresses[task.index]} is gone, and with "
                "it its variables. Start the cluster anew, make the strategy anew, and restore the "
                "variables from a checkpoint."
            )
            self._dispatch.fail(ServerLostError(self._lost[task.index]))


def _address_of(addresses: list[str], lost: dict[int, str], server: int) -> str:
    """Returns the address of a server; called for a variable's end, so it keeps no session."""
    if server in lost:
        raise ServerLostError(lost[server])
    return addresses[server]


def _end(connection: Connection, session: str, members: Membership) -> None:
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
    names = names_in_order([about["name"] for about in known], workers, servers)
    members = Members(client, names)
    client.register_plugin(TaskPlugin())
    own = shared_connection(client)
    return DaskTasks(
        uuid.uuid4().hex, own, members, workers=workers, servers=servers, module=module
    )


def of_cluster(cluster: ClusterSpec, module: str) -> DaskTasks:
    """Returns a session with the processes that listen at the addresses of a cluster."""
    tasks = {
        Task(job, index): cluster.task_address(job, index)
        for job in ("worker", "ps")
        for index in cluster.task_indices(job)
    }
    for address in tasks.values():
        host_and_port(address)
    limit = start_limit()
    session = uuid.uuid4().hex
    own = own_connection()
    members = AddressedMembers(own, session, tasks, limit)
    workers, servers = cluster.num_tasks("worker"), cluster.num_tasks("ps")
    return DaskTasks(session, own, members, workers=workers, servers=servers, module=module)
