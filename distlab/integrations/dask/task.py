"""The process of a worker or a parameter server, of a Dask cluster or at an address of its own.

A cluster of this machine starts it: `python -m distlab.integrations.dask.task SCHEDULER NAME`, with
the cluster's TLS keys on its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import dask
from distributed import Worker
from distributed.core import Server as Node
from distributed.security import Security

from distlab.cluster.server import Server
from distlab.errors import ClusterError, ClusterSpecError, PortInUseError
from distlab.integrations.dask.connection import SETTINGS, host_and_port, security, url
from distlab.integrations.dask.handlers import TaskSessions

_JOBS: Final = ("worker", "ps")
_SCHEDULER_SECONDS: Final = 120

_SWITCH_SECONDS: Final = 0.0005
"""Python's 5 ms would let a message wait that long for a closure that computes, at each read."""


def join_scheduler(
    scheduler: str, name: str, host: str | None = None, keys: Security | None = None
) -> None:
    """Serves a Dask cluster until its scheduler ends, or the connection to it."""

    async def live() -> None:
        try:
            worker = await Worker(
                scheduler,
                name=name,
                nthreads=1,
                memory_limit=0,
                dashboard=False,
                host=host,
                security=keys or security(),
                death_timeout=_SCHEDULER_SECONDS,
            )
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"{name} did not join the Dask cluster at {scheduler} in {_SCHEDULER_SECONDS} s: "
                f"{error}. Check that its scheduler runs there, and has no worker of that name."
            ) from error
        await worker.finished()

    _prepare()
    asyncio.run(live())


def serve(server: Server, stopped: threading.Event | None = None) -> None:
    """Serves a task at its address until it is stopped. The calling thread can be interrupted."""
    if server.job_name not in _JOBS:
        raise ClusterSpecError(
            f"Workers and parameter servers are served, and {server!r} is neither. The program of "
            "the chief makes the ParameterServerStrategy."
        )
    host, port = host_and_port(server.address)
    host = host if _is_loopback(host) else ""
    ended = stopped or threading.Event()
    _prepare()
    with ThreadPoolExecutor(1, thread_name_prefix=f"distlab-{server.job_name}") as thread:
        try:
            thread.submit(asyncio.run, _serve_address(server, host, port, ended)).result()
        finally:
            ended.set()


async def _serve_address(server: Server, host: str, port: int, stopped: threading.Event) -> None:
    arguments = security().get_connection_args("worker")
    node: Any = Node({}, needs_workdir=False, connection_args=arguments)
    sessions = TaskSessions(node, f"{server.job_name} {server.task_index}")
    node.handlers.update(sessions.handlers())
    try:
        await node.listen(
            url(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"),
            **security().get_listen_args("worker"),
        )
    except OSError as error:
        await node.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"{server!r} must listen at its address, where another process listens already. "
                "End that one, or give the task another port in the cluster of all processes."
            ) from None
        raise ClusterError(f"{server!r} can't listen at its address: {error}.") from error
    await node
    await asyncio.to_thread(stopped.wait)
    await node.close()


def _prepare() -> None:
    dask.config.set(SETTINGS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)  # what matters is raised


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def main() -> None:
    """Serves the scheduler of this machine that the arguments name."""
    scheduler, name = sys.argv[1:]
    try:
        keys = Security(require_encryption=True, **json.load(sys.stdin))
        join_scheduler(scheduler, name, "127.0.0.1", keys)
    finally:
        os._exit(0)  # a closure may run in another thread, and nobody waits for it


if __name__ == "__main__":
    main()
