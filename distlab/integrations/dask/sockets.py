"""Sockets between processes of a cluster, opened by Dask.

Dask connects, by the means that the cluster is set up with, and then hands the socket over. What
is sent often needs none of what Dask does for each message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Coroutine
from typing import Any, Final

from distributed.comm.core import Comm, connect
from distributed.comm.tcp import TCP
from distributed.core import ConnectionPool

_PIECE_BYTES: Final = 1 << 18
_READY: Final = "ready"
_relaying: Final[set[asyncio.Task[None]]] = set()  # the event loop keeps no reference


async def opened(address: str, pool: ConnectionPool, verb: str, session: str) -> socket.socket:
    """Returns a socket that another process serves from now on."""
    comm = await connect(address, timeout=pool.timeout, **pool.connection_args)
    try:
        await comm.write({"op": verb, "session": session, "reply": False})
        answer = await comm.read()
    except BaseException:
        comm.abort()
        raise
    if answer != _READY:
        comm.abort()
        raise ConnectionError(f"{address} does not know this session: {answer!r}")
    taken, relay = _taken(comm)
    if relay is not None:
        task = asyncio.ensure_future(relay)
        _relaying.add(task)
        task.add_done_callback(_relaying.discard)
    return taken


async def accepted(comm: Comm) -> tuple[socket.socket, Coroutine[Any, Any, None] | None]:
    """Returns the other end of `opened`, and what must run while it is used."""
    await comm.write(_READY)
    return _taken(comm)


def _taken(comm: Comm) -> tuple[socket.socket, Coroutine[Any, Any, None] | None]:
    if type(comm) is TCP and comm.stream is not None:
        taken = socket.socket(fileno=os.dup(comm.stream.socket.fileno()))
        comm.abort()  # closes what it had, and the connection stays open
        return taken, None
    # Encrypted, or another kind of connection: Dask sends what is written to the socket.
    own, other = socket.socketpair()
    return own, _relay(comm, other)


async def _relay(comm: Comm, own: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    own.setblocking(False)

    async def send() -> None:
        while some := await loop.sock_recv(own, _PIECE_BYTES):
            await comm.write(some)

    async def receive() -> None:
        while True:
            await loop.sock_sendall(own, await comm.read())

    both = [asyncio.ensure_future(send()), asyncio.ensure_future(receive())]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await task
        comm.abort()
        own.close()


def shut(own: socket.socket) -> None:
    """Ends a connection, which wakes a thread that waits for it, and frees the socket."""
    with contextlib.suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)
