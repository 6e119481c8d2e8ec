"""The connections of a process to the parameter servers of a session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, final

from distributed.core import ConnectionPool

from distlab.errors import ServerLostError
from distlab.integrations.dask.channel import Channel
from distlab.integrations.dask.messages import FAILED, UNKNOWN
from distlab.integrations.dask.sockets import opened

_CALL_SECONDS: Final = 120.0
"""How long a call may take."""


def _uncounted(server: int) -> None:
    """Counts no message."""


@final
class ServerChannels:
    """Calls parameter servers, from any thread but that of Dask's event loop.

    The thread that calls sends and receives itself. A call has its connections to itself, so
    there are as many as threads that call at once.

    Args:
      session: The session's name.
      pool: The connections of a Dask client or worker.
      loop: Their event loop, in a thread of its own.
      address_of: Returns the address of a server; raises `ServerLostError` when it is lost.
    """

    def __init__(
        self,
        session: str,
        pool: ConnectionPool,
        loop: asyncio.AbstractEventLoop,
        address_of: Callable[[int], str],
    ) -> None:
        self._session = session
        self._pool = pool
        self._loop = loop
        self._address_of = address_of
        self._idle: dict[int, list[Channel]] = {}
        self._open: set[tuple[int, Channel]] = set()

    def call(
        self, messages: Mapping[int, Any], sent: Callable[[int], None] = _uncounted
    ) -> dict[int, Any]:
        """Calls servers at the same time, and returns the answer of each."""
        if not self._loop.is_running():
            raise ServerLostError(
                "The connection to the parameter servers was closed, so their variables can't be "
                "reached. Use them before the cluster is stopped."
            )
        taken: dict[int, Channel] = {}
        answers: dict[int, Any] = {}
        server = -1
        try:
            for server, message in messages.items():
                taken[server] = self._take(server)
                taken[server].send(message)
                sent(server)
            for server, channel in taken.items():
                answers[server] = channel.receive()
        except BaseException as error:
            for failed, channel in taken.items():
                self._drop(failed, channel)  # an answer may be under way
            if isinstance(error, OSError):
                raise self._gone(server, error) from error
            raise
        for server, channel in taken.items():
            self._idle[server].append(channel)
        return {server: self._result(server, *answer) for server, answer in answers.items()}

    def forget(self, server: int, number: int) -> None:
        """Has a server free a value, some time; one that is lost has freed it."""

        async def tell() -> None:
            rpc = self._pool(self._address_of(server))
            await rpc.distlab_forget(session=self._session, numbers=[number])

        def begin() -> None:
            task = asyncio.ensure_future(tell())
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(begin)

    def lost(self, server: int) -> None:
        """Ends what waits for a server that is lost."""
        idle = self._idle.get(server, [])
        while idle:
            with contextlib.suppress(IndexError):  # another thread took the last one
                self._drop(server, idle.pop())
        for other, channel in list(self._open):
            if other == server:
                channel.shut()

    def close(self) -> None:
        """Closes all connections."""
        for server, channel in list(self._open):
            self._drop(server, channel)
        self._idle.clear()

    def _take(self, server: int) -> Channel:
        address = self._address_of(server)
        with contextlib.suppress(IndexError):
            return self._idle.setdefault(server, []).pop()
        opening = opened(address, self._pool, "distlab_values", self._session)
        waited = asyncio.run_coroutine_threadsafe(opening, self._loop)
        try:
            channel = Channel(waited.result(_CALL_SECONDS), _CALL_SECONDS)
        except BaseException:
            waited.cancel()
            raise
        self._open.add((server, channel))
        return channel

    def _drop(self, server: int, channel: Channel) -> None:
        self._open.discard((server, channel))
        channel.close()

    def _result(self, server: int, status: str, value: Any) -> Any:
        if status == FAILED:
            raise value
        if status == UNKNOWN:
            raise ServerLostError(
                f"Parameter server {server} at {self._address_of(server)} was started anew, and "
                "its variables are lost. Make the strategy anew, and restore them from a "
                "checkpoint."
            )
        return value

    def _gone(self, server: int, error: OSError) -> ServerLostError:
        if isinstance(error, TimeoutError):
            return ServerLostError(
                f"Parameter server {server} did not answer within {_CALL_SECONDS:g} s. Start the "
                "cluster anew, and restore the variables from a checkpoint."
            )
        address = self._address_of(server)  # raises what is known of a lost one
        return ServerLostError(
            f"Parameter server {server} at {address} is gone, and with it its variables "
            f"({error}). Start the cluster anew, and restore them from a checkpoint."
        )
