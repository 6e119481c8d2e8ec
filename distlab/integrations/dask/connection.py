"""Settings of Dask, and a coordinator's connections: those of a client, or its own."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from distributed.core import ConnectionPool
from distributed.security import Security

from distlab.errors import ClusterSpecError
from distlab.text.shown import shown

SETTINGS: Final[dict[str, Any]] = {
    # A process that is stopped is lost after that time, or after twice as long.
    "distributed.scheduler.worker-ttl": "25 s",
    "distributed.comm.timeouts.connect": "10 s",
    "distributed.comm.retry.count": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.multiprocessing.initialize": [],
    # Pages and metrics that every user of the machine could read.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask's configuration in the processes that distlab starts."""

_CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Connection:
    """Connections to tasks, and their event loop, in which `end` is called after the last use."""

    pool: ConnectionPool
    loop: asyncio.AbstractEventLoop
    end: Callable[[], None]


def own_connection() -> Connection:
    """Returns connections in a new thread, which ends with them."""
    made: Future[Connection] = Future()

    async def live() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        args = security().get_connection_args("client")
        async with ConnectionPool(timeout=_CONNECT_SECONDS, connection_args=args) as pool:
            made.set_result(Connection(pool, loop, ended.set))
            await ended.wait()

    run = functools.partial(asyncio.run, live())
    threading.Thread(target=run, name="distlab-cluster", daemon=True).start()
    return made.result()


def event_loop(node: Any) -> asyncio.AbstractEventLoop:
    """Returns the event loop of a Dask client or worker, beneath Tornado's."""
    loop: asyncio.AbstractEventLoop = node.loop.asyncio_loop
    return loop


def security() -> Security:
    """Returns the TLS settings of Dask's configuration."""
    return Security()


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the parts of an address of a cluster spec."""
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
