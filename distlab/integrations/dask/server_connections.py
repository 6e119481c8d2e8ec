"""The connections of a process to parameter servers, and the event loops that they belong to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, final

from distributed.core import ConnectionPool, Server

from distlab.errors import ServerLostError
from distlab.integrations.dask.event_loop import event_loop

CALL_SECONDS: Final = 120.0
"""How long a call may take."""

Call: TypeAlias = Callable[[ConnectionPool], Coroutine[Any, Any, Any]]


class Connections(Protocol):
    """Calls other processes."""

    def run(self, call: Call) -> Any:
        """Waits for a call, from any thread but that of Dask's event loop, and returns its result.

        Args:
          call: Receives the connections.

        Raises:
          TimeoutError: It took longer than `CALL_SECONDS`.
          ServerLostError: The connections were closed.
        """

    def begin(self, call: Call) -> None:
        """Makes a call some time, whose result nobody waits for."""


@final
class SharedConnections:
    """The connections of a Dask client or worker, whose event loop runs in a thread of its own.

    Args:
      pool: The connections.
      loop: Their event loop.
    """

    def __init__(self, pool: ConnectionPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool = pool
        self._loop = loop

    def run(self, call: Call) -> Any:
        """Waits for a call, and returns its result."""
        if not self._loop.is_running():
            raise ServerLostError(
                "The connection to the parameter servers was closed, so their variables can't be "
                "reached. Use them before the cluster is stopped."
            )
        waited = asyncio.run_coroutine_threadsafe(call(self._pool), self._loop)
        try:
            return waited.result(CALL_SECONDS)
        except FutureTimeoutError:
            waited.cancel()
            raise

    def begin(self, call: Call) -> None:
        """Makes a call some time, whose result nobody waits for."""

        def start() -> None:
            task = asyncio.ensure_future(call(self._pool))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(start)


class _Own(NamedTuple):
    """What a thread has to itself."""

    thread: int
    loop: asyncio.AbstractEventLoop
    pool: ConnectionPool


@final
class ThreadConnections:
    """Connections that one thread of a worker's process has to itself.

    That thread sends and receives, so that no call has to wait for another thread twice. Other
    threads, and functions that run an event loop themselves, share others.

    Args:
      node: What listens in this process.
    """

    def __init__(self, node: Server) -> None:
        self._shared = SharedConnections(node.rpc, event_loop(node))
        self._settings = node.rpc
        self._own: _Own | None = None

    def adopt(self) -> None:
        """Gives the connections to the calling thread, the first time."""
        if self._own is not None:
            return
        loop = asyncio.new_event_loop()
        known = self._settings
        pool = ConnectionPool(
            serializers=known.serializers,
            deserializers=known.deserializers,
            connection_args=known.connection_args,
            timeout=known.timeout,
        )
        loop.run_until_complete(pool.start())
        self._own = _Own(threading.get_ident(), loop, pool)

    def release(self) -> None:
        """Closes the connections, in the thread that has them."""
        if self._own is not None:
            own, self._own = self._own, None
            own.loop.run_until_complete(own.pool.close())
            own.loop.close()

    def run(self, call: Call) -> Any:
        """Waits for a call, and returns its result."""
        own = self._own
        if own is None or own.thread != threading.get_ident() or _runs_a_loop():
            return self._shared.run(call)
        return own.loop.run_until_complete(_limited(call(own.pool)))

    def begin(self, call: Call) -> None:
        """Makes a call some time, whose result nobody waits for."""
        self._shared.begin(call)


async def _limited(call: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.timeout(CALL_SECONDS):
        return await call


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
