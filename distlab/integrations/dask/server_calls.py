"""Calls of parameter servers, by a worker or by the coordinator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, final

import numpy as np
from distributed.core import ConnectionPool
from distributed.protocol.serialize import to_serialize

from distlab.errors import ServerLostError
from distlab.integrations.dask.messages import UNKNOWN
from distlab.integrations.dask.packing import as_text, packed, unpacked
from distlab.integrations.dask.server_connections import CALL_SECONDS, Connections
from distlab.variables.operations import Operation
from distlab.variables.remote_storage import Key
from distlab.variables.server_traffic import WorkerTraffic


@final
class ServerCalls:
    """The parameter servers of a session (`ValueServers`). Each call is one message a server.

    Args:
      session: The session's name.
      connections: The connections to other processes.
      address_of: Returns the address of a server; raises `ServerLostError` when it is lost.
      traffic: Counts what is read and changed; None for nothing.
    """

    def __init__(
        self,
        session: str,
        connections: Connections,
        address_of: Callable[[int], str],
        traffic: WorkerTraffic | None = None,
    ) -> None:
        self._session = session
        self._connections = connections
        self._address_of = address_of
        self._traffic = traffic
        self._commits: deque[tuple[Sequence[tuple[Key, Operation]], Future[None]]] = deque()
        self._committing = False

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
        asked = {server: {"numbers": as_text(tuple(own))} for server, own in numbers.items()}
        answers = self._call({server: ("distlab_read", about) for server, about in asked.items()})
        values = {server: iter(unpacked(*answer)) for server, answer in answers.items()}
        found = [next(values[key.server]) for key in keys]
        if self._traffic is not None:
            for key, value in zip(keys, found, strict=True):
                self._traffic.received(key.server, value.nbytes)
        return found

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values."""
        self._call(_messages(updates))
        self._count(updates)

    def commit(self, updates: Sequence[tuple[Key, Operation]]) -> Future[None]:
        """Begins to change values, after all that earlier calls of this method change.

        What several calls change while servers are busy travels together.

        Args:
          updates: The changes, with NumPy arrays.

        Returns:
          Done when the values are changed.
        """
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # nobody may cancel it
        self._count(updates)
        self._commits.append((updates, done))
        self._connections.begin(self._commit_all)
        return done

    def _count(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        if self._traffic is not None:
            for key, operation in updates:
                size = sum(np.asarray(operand).nbytes for operand in operation.operands)
                self._traffic.sent(key.server, size)

    def wait(self, done: Future[None]) -> None:
        """Waits for what `commit` began.

        Raises:
          ServerLostError: A server is lost, or does not answer.
        """
        try:
            done.result(CALL_SECONDS)
        except TimeoutError:
            raise _silent("Parameter servers") from None

    async def _commit_all(self, pool: ConnectionPool) -> None:
        if self._committing:
            return
        self._committing = True
        try:
            while self._commits:
                count = len(self._commits)
                together = [self._commits.popleft() for _ in range(count)]
                changes = [change for updates, _ in together for change in updates]
                try:
                    await self._answers(pool, _messages(changes))
                except Exception as error:  # noqa: BLE001 - those who wait raise it
                    for _, done in together:
                        done.set_exception(error)
                else:
                    for _, done in together:
                        done.set_result(None)
        finally:
            self._committing = False

    def forget(self, key: Key) -> None:
        """Frees a value, some time; a server that is lost has freed it."""
        about = {"numbers": [key.number]}
        self._connections.begin(
            lambda pool: self._answer(pool, key.server, "distlab_forget", about)
        )

    def _call(self, calls: dict[int, tuple[str, dict[str, Any]]]) -> dict[int, Any]:
        """Calls servers at the same time, and returns the answer of each.

        Raises:
          ServerLostError: One does not answer.
        """
        try:
            answers = self._connections.run(lambda pool: self._answers(pool, calls))
            return dict(zip(calls, answers, strict=True))
        except TimeoutError:
            raise _silent(f"Parameter servers {sorted(calls)}") from None

    async def _answers(
        self, pool: ConnectionPool, calls: dict[int, tuple[str, dict[str, Any]]]
    ) -> list[Any]:
        if len(calls) == 1:
            ((server, (verb, about)),) = calls.items()
            return [await self._answer(pool, server, verb, about)]
        return await asyncio.gather(
            *(self._answer(pool, server, verb, about) for server, (verb, about) in calls.items())
        )

    async def _answer(
        self, pool: ConnectionPool, server: int, verb: str, about: dict[str, Any]
    ) -> Any:
        address = self._address_of(server)
        try:
            answer = await getattr(pool(address), verb)(session=self._session, **about)
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


def _silent(who: str) -> ServerLostError:
    return ServerLostError(
        f"{who} did not answer within {CALL_SECONDS:g} s. Start the cluster anew, and restore the "
        "variables from a checkpoint."
    )


def _messages(updates: Sequence[tuple[Key, Operation]]) -> dict[int, tuple[str, dict[str, Any]]]:
    by_server: dict[int, list[tuple[Key, Operation]]] = {}
    for key, operation in updates:
        by_server.setdefault(key.server, []).append((key, operation))
    return {server: ("distlab_update", _message(own)) for server, own in by_server.items()}


def _message(updates: Sequence[tuple[Key, Operation]]) -> dict[str, Any]:
    changes = tuple((key.number, change.verb, len(change.operands)) for key, change in updates)
    described, buffer = packed(
        [np.asarray(operand) for _, change in updates for operand in change.operands]
    )
    return {"changes": as_text(changes), "described": described, "buffer": to_serialize(buffer)}
