"""Calls of parameter servers from any thread of a worker or of the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, final

import numpy as np
from distributed.core import ConnectionPool
from distributed.protocol.serialize import to_serialize

from distlab.errors import ServerLostError
from distlab.integrations.dask.messages import UNKNOWN
from distlab.integrations.dask.packing import packed, unpacked
from distlab.variables.operations import Operation
from distlab.variables.remote_storage import Key

_CALL_SECONDS: Final = 120.0
"""How long a server may take to answer."""


@final
class ServerCalls:
    """The parameter servers of a session (`ValueServers`). Each call is one message a server.

    Args:
      session: The session's name.
      pool: The connections to other processes.
      loop: The event loop of those connections, which runs in another thread.
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

    def make(self, value: np.ndarray, server: int) -> Key:
        """Stores a value on a server."""
        described, buffer = packed([value])
        about = {"described": described, "buffer": to_serialize(buffer)}
        return Key(server, self._call({server: ("distlab_make", about)})[server])

    def read(self, keys: Sequence[Key]) -> list[np.ndarray]:
        """Returns values."""
        numbers: dict[int, list[int]] = {}
        for key in keys:
            numbers.setdefault(key.server, []).append(key.number)
        answers = self._call(
            {server: ("distlab_read", {"numbers": own}) for server, own in numbers.items()}
        )
        values = {server: iter(unpacked(*answer)) for server, answer in answers.items()}
        return [next(values[key.server]) for key in keys]

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values."""
        by_server: dict[int, list[tuple[Key, Operation]]] = {}
        for key, operation in updates:
            by_server.setdefault(key.server, []).append((key, operation))
        self._call({server: ("distlab_update", _message(own)) for server, own in by_server.items()})

    def forget(self, key: Key) -> None:
        """Frees a value, some time; a server that is lost has freed it."""
        about = {"numbers": [key.number]}

        def begin() -> None:
            task = asyncio.ensure_future(self._answer(key.server, "distlab_forget", about))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(begin)

    def _call(self, calls: dict[int, tuple[str, dict[str, Any]]]) -> dict[int, Any]:
        """Calls servers at the same time, and returns the answer of each.

        Raises:
          ServerLostError: One does not answer.
        """
        if not self._loop.is_running():
            raise ServerLostError(
                "The connection to the parameter servers was closed, so their variables can't be "
                "reached. Use them before the cluster is stopped."
            )
        waited = asyncio.run_coroutine_threadsafe(self._answers(calls), self._loop)
        try:
            return dict(zip(calls, waited.result(_CALL_SECONDS), strict=True))
        except FutureTimeoutError:
            waited.cancel()
            raise ServerLostError(
                f"Parameter servers {sorted(calls)} did not answer within {_CALL_SECONDS:g} s. "
                "Start the cluster anew, and restore the variables from a checkpoint."
            ) from None

    async def _answers(self, calls: dict[int, tuple[str, dict[str, Any]]]) -> list[Any]:
        if len(calls) == 1:
            ((server, (verb, about)),) = calls.items()
            return [await self._answer(server, verb, about)]
        return await asyncio.gather(
            *(self._answer(server, verb, about) for server, (verb, about) in calls.items())
        )

    async def _answer(self, server: int, verb: str, about: dict[str, Any]) -> Any:
        address = self._address_of(server)
        try:
            answer = await getattr(self._pool(address), verb)(session=self._session, **about)
        except (OSError, TimeoutError) as error:
            raise ServerLostError(
                f"Parameter server {server} at {address} is gone, and with it its variables "
                f"({error}). Start the cluster anew, and restore them from a checkpoint."
            ) from error
        if isinstance(answer, str) and answer == UNKNOWN:
            raise ServerLostError(
                f"Parameter server {server} at {address} was started anew, and its variables are "
                "lost. Make the strategy anew, and restore them from a checkpoint."
            )
        return answer


def _message(updates: Sequence[tuple[Key, Operation]]) -> dict[str, Any]:
    changes = [(key.number, change.verb, len(change.operands)) for key, change in updates]
    described, buffer = packed(
        [np.asarray(operand) for _, change in updates for operand in change.operands]
    )
    return {"changes": changes, "described": described, "buffer": to_serialize(buffer)}
