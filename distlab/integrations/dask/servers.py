"""Parameter servers as a worker or the coordinator reaches them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from distributed.core import ConnectionPool

from distlab.errors import ContextError, ServerLostError
from distlab.integrations.dask.values import as_text, kinds_text, packed, sendable, unpacked
from distlab.variables.operations import Operation
from distlab.variables.remote_storage import Key, PackedChanges, PackedValues
from distlab.variables.server_traffic import WorkerTraffic

_CALL_SECONDS: Final = 120.0
_KEPT: Final = 256
_MOST_PENDING: Final = 256


@final
class ServerCalls:
    """The parameter servers of a session (`ValueServers`). Each call is one message a server.

    Any thread but that of the event loop may call.
    """

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
        answers = self._call("read", {server: _numbers(tuple(own[server])) for server in own})
        values = {}
        for server, (versions, kinds, buffer) in answers.items():
            self._note_read(server, tuple(own[server]), versions, buffer)
            values[server] = iter(unpacked(kinds, buffer))
        return [next(values[key.server]) for key in keys]

    def read_packed(self, parts: Sequence[PackedValues]) -> list[np.ndarray]:
        """Returns the bytes of values."""
        answers = self._call("read", {part.server: _numbers(part.keys) for part in parts})
        found = []
        for part in parts:
            versions, _, buffer = answers[part.server]
            self._note_read(part.server, part.keys, versions, buffer)
            found.append(np.frombuffer(buffer, np.uint8))
        return found

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values."""
        by_server: dict[int, list[tuple[Key, Operation]]] = {}
        for key, operation in updates:
            by_server.setdefault(key.server, []).append((key, operation))
        messages, keys = {}, {}
        for server, own in by_server.items():
            keys[server] = tuple(key for key, _ in own)
            rows = tuple((key.number, one.verb, len(one.operands)) for key, one in own)
            operands = [np.asarray(operand) for _, one in own for operand in one.operands]
            messages[server] = (as_text(rows), *packed(operands))
        self._change(messages, keys)

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        """Changes values."""
        messages = {part.server: (*_rows(part), buffer) for part, buffer in parts}
        keys = {part.server: tuple(change.key for change in part.changes) for part, _ in parts}
        self._change(messages, keys)

    def forget(self, key: Key) -> None:
        """Frees a value, some time; a server that is lost has freed it."""

        def begin() -> None:
            task = asyncio.ensure_future(self._ask(key.server, "forget", (key.number,)))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(begin)

    def _change(
        self, messages: Mapping[int, tuple[str, str, Any]], keys: Mapping[int, tuple[Key, ...]]
    ) -> None:
        sent = {
            server: (rows, kinds, sendable(buffer))
            for server, (rows, kinds, buffer) in messages.items()
        }
        for server, before in self._call("update", sent).items():
            if self._traffic is not None:
                size = len(messages[server][2])
                self._traffic.change_sent(server)
                self._traffic.changed_all(server, keys[server], before, size)

    def _note_read(
        self, server: int, keys: tuple[Key, ...], versions: Sequence[int], buffer: Any
    ) -> None:
        if self._traffic is not None:
            self._traffic.read_sent(server)
            self._traffic.read_all(server, keys, versions, len(buffer))

    def _call(self, verb: str, messages: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Calls servers at the same time, and returns the answer of each."""
        if not self._loop.is_running():
            raise ServerLostError(
                "The connection to the parameter servers was closed, so their variables can't be "
                "reached. Use them before the cluster is stopped."
            )

        async def ask_all() -> list[Any]:
            if len(messages) == 1:
                return [await self._ask(server, verb, about) for server, about in messages.items()]
            calls = [self._ask(server, verb, about) for server, about in messages.items()]
            return await asyncio.gather(*calls)

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
                f"({error}). Start the cluster anew, and restore them from a checkpoint."
            ) from error


@functools.lru_cache(_KEPT)
def _numbers(keys: tuple[Key, ...]) -> tuple[str]:
    return (as_text(tuple(key.number for key in keys)),)


@functools.lru_cache(_KEPT)
def _rows(part: PackedChanges) -> tuple[str, str]:
    rows = tuple((change.key.number, change.verb, change.operands) for change in part.changes)
    return as_text(rows), kinds_text(part.kinds)


@final
class BufferedValues:
    """The variables of the closure that a worker runs (`ValueServers`).

    Changes are sent together, before the next read and at the closure's end.
    """

    def __init__(self, calls: ServerCalls) -> None:
        self._calls = calls
        self._pending: list[tuple[Key, Operation]] = []

    def flush(self) -> None:
        """Sends all changes."""
        pending, self._pending = self._pending, []
        if pending:
            self._calls.update(pending)

    def make(self, value: np.ndarray, server: int) -> Key:
        """Refuses: a closure that runs twice would make two variables."""
        del value, server
        raise ContextError(
            "A variable was made in a function that a worker runs. Make variables in the "
            "coordinator, in strategy.scope(), and use them in the function."
        )

    def read(self, keys: Sequence[Key]) -> list[np.ndarray]:
        """Returns values."""
        self.flush()
        return self._calls.read(keys)

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values, at the latest when the closure ends."""
        self._pending += updates
        if len(self._pending) >= _MOST_PENDING:
            self.flush()

    def read_packed(self, parts: Sequence[PackedValues]) -> list[np.ndarray]:
        """Returns the bytes of values that a program reads."""
        self.flush()
        return self._calls.read_packed(parts)

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        """Changes values by operations that a program returned, at once."""
        self.flush()
        self._calls.change_packed(parts)

    def forget(self, key: Key) -> None:
        """Frees a value."""
        self._calls.forget(key)
