"""Parameter servers as a worker or the coordinator reaches them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from distributed.core import ConnectionPool

from distlab.errors import ContextError, ServerLostError
from distlab.integrations.dask.values import (
    Packed,
    as_text,
    kinds_text,
    packed,
    sendable,
    unpacked,
)
from distlab.variables.operations import Operation
from distlab.variables.remote_storage import Key, PackedChanges, PackedValues
from distlab.variables.server_traffic import WorkerTraffic

_CALL_SECONDS: Final = 120.0
_KEPT: Final = 256
_MOST_PENDING: Final = 256


class ServerCalls:
    """The parameter servers of a session (`ValueServers`). Each call is one message a server."""

    def __init__(
        self,
        session: str,
        pool: ConnectionPool,
        loop: asyncio.AbstractEventLoop,
        address_of: Callable[[int], str],
        traffic: WorkerTraffic | None = None,
    ) -> None:
        self._session = session
        self._pool = pool
        self._loop = loop
        self._address_of = address_of
        self._traffic = traffic

    def make(self, value: np.ndarray, server: int) -> Key:
        """Stores a value on a server."""
        kinds, buffer = packed([value])
        return Key(server, self._call("make", {server: (kinds, sendable(buffer))})[server])

    def read(self, keys: Sequence[Key]) -> list[np.ndarray]:
        """Returns values."""
        own: dict[int, list[Key]] = {}
        for key in keys:
            own.setdefault(key.server, []).append(key)
        found = self._read({server: tuple(numbers) for server, numbers in own.items()})
        values = {server: iter(unpacked(*of_server)) for server, of_server in found.items()}
        return [next(values[key.server]) for key in keys]

    def read_packed(self, parts: Sequence[PackedValues]) -> list[np.ndarray]:
        """Returns the bytes of values."""
        found = self._read({part.server: part.keys for part in parts})
        return [np.frombuffer(found[part.server][1], np.uint8) for part in parts]

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values."""
        by_server: dict[int, list[tuple[Key, Operation]]] = {}
        for key, operation in updates:
            by_server.setdefault(key.server, []).append((key, operation))
        messages = {}
        for server, own in by_server.items():
            rows = tuple((key.number, one.verb, len(one.operands)) for key, one in own)
            operands = [np.asarray(operand) for _, one in own for operand in one.operands]
            keys = tuple(key for key, _ in own)
            messages[server] = (keys, as_text(rows), *packed(operands))
        self._change(messages)

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        """Changes values."""
        self._change({part.server: (*_rows(part), buffer) for part, buffer in parts})

    def forget(self, key: Key) -> None:
        """Frees a value, some time; a server that is lost has freed it."""

        def begin() -> None:
            task = asyncio.ensure_future(self._ask(key.server, "forget", (key.number,)))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(begin)

    def _read(self, keys: Mapping[int, tuple[Key, ...]]) -> dict[int, Packed]:
        found: dict[int, Packed] = {}
        messages = {server: (_numbers(own),) for server, own in keys.items()}
        for server, (versions, kinds, buffer) in self._call("read", messages).items():
            found[server] = kinds, buffer
            if self._traffic is not None:
                self._traffic.read_sent(server)
                self._traffic.read_all(server, keys[server], versions, len(buffer))
        return found

    def _change(self, messages: Mapping[int, tuple[tuple[Key, ...], str, str, Any]]) -> None:
        sent = {
            server: (rows, kinds, sendable(buffer))
            for server, (_, rows, kinds, buffer) in messages.items()
        }
        for server, before in self._call("update", sent).items():
            keys, *_, buffer = messages[server]
            if self._traffic is not None:
                self._traffic.change_sent(server)
                self._traffic.changed_all(server, keys, before, len(buffer))

    def _call(self, verb: str, messages: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Calls servers at the same time, and returns the answer of each."""
        if not self._loop.is_running():
            raise ServerLostError(
                "The connection to the parameter servers was closed, so their variables can't be "
                "reached. Use them before the cluster is stopped."
            )

        async def ask_all() -> list[Any]:
            return await asyncio.gather(
                *(self._ask(n, verb, about) for n, about in messages.items())
            )

        waited = asyncio.run_coroutine_threadsafe(ask_all(), self._loop)
        try:
            return dict(zip(messages, waited.result(_CALL_SECONDS), strict=True))
        except TimeoutError:
            waited.cancel()
            raise ServerLostError(
                f"Parameter servers did not answer within {_CALL_SECONDS:g} s. Start the cluster "
                "anew, and restore the variables from a checkpoint."
            ) from None
        except BaseException:
            waited.cancel()
            raise

    async def _ask(self, server: int, verb: str, about: tuple[Any, ...]) -> Any:
        address = self._address_of(server)
        try:
            return await self._pool(address).distlab_values(
                session=self._session, verb=verb, about=about
            )
        except OSError as error:
            self._address_of(server)  # raises the cause of a server that is known as lost
            raise ServerLostError(
                f"Parameter server {server} at {address} is gone, and with it its variables "
                f"({error}). Start a new cluster, and restore them from a checkpoint."
            ) from error


@functools.lru_cache(_KEPT)
def _numbers(keys: tuple[Key, ...]) -> str:
    return as_text(tuple(key.number for key in keys))


@functools.lru_cache(_KEPT)
def _rows(part: PackedChanges) -> tuple[tuple[Key, ...], str, str]:
    rows = tuple((change.key.number, change.verb, change.operands) for change in part.changes)
    return tuple(change.key for change in part.changes), as_text(rows), kinds_text(part.kinds)


@final
class BufferedValues(ServerCalls):
    """The variables of a closure (`ValueServers`): changes are sent before reads, and last."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pending: list[tuple[Key, Operation]] = []

    def flush(self) -> None:
        """Sends all changes."""
        pending, self._pending = self._pending, []
        if pending:
            super().update(pending)

    def make(self, value: np.ndarray, server: int) -> Key:
        """Refuses: a closure that runs twice would make two variables."""
        del value, server
        raise ContextError(
            "A variable was made in a function that a worker runs. Make variables in the "
            "coordinator, in strategy.scope(), and use them in the function."
        )

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values, at the latest when the closure ends."""
        self._pending += updates
        if len(self._pending) >= _MOST_PENDING:
            self.flush()

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        """Changes values by operations that a program returned, at once."""
        self.flush()
        super().change_packed(parts)

    def _read(self, keys: Mapping[int, tuple[Key, ...]]) -> dict[int, Packed]:
        self.flush()
        return super()._read(keys)
