"""How a coordinator reaches its tasks: by a Dask client, or by connections of its own."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from distributed import Client
from distributed.core import ConnectionPool
from distributed.security import Security

from distlab.integrations.dask.event_loop import event_loop

_CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Connection:
    """Connections to tasks, and the event loop that they live in, in a thread of its own.

    Attributes:
      pool: The connections.
      loop: The event loop.
      is_open: Returns whether they can be used.
      end: Called in the event loop when they are used no more.
    """

    pool: ConnectionPool
    loop: asyncio.AbstractEventLoop
    is_open: Callable[[], bool]
    end: Callable[[], None]


def shared_connection(client: Client) -> Connection:
    """Returns the connections of a Dask client, which outlive the session."""
    return Connection(
        client.rpc, event_loop(client), lambda: client.status == "running", lambda: None
    )


def own_connection() -> Connection:
    """Returns connections in a new thread, which ends with them."""
    made: Future[Connection] = Future()

    async def live() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        args = security().get_connection_args("client")
        async with ConnectionPool(timeout=_CONNECT_SECONDS, connection_args=args) as pool:
            made.set_result(Connection(pool, loop, lambda: not ended.is_set(), ended.set))
            await ended.wait()

    run = functools.partial(asyncio.run, live())
    threading.Thread(target=run, name="distlab-cluster", daemon=True).start()
    return made.result()


def security() -> Security:
    """Returns what Dask's configuration says of TLS."""
    return Security()
