"""The variables of the closure that a worker runs: few messages, and its own changes seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from distlab.errors import ContextError
from distlab.integrations.dask.server_calls import ServerCalls
from distlab.variables.operations import Operation
from distlab.variables.remote_storage import Key, PackedChanges, PackedValues

_MOST_PENDING: Final = 256
"""Changes that wait to be sent together."""


@final
class BufferedValues:
    """Sends changes together, before the next read and at the closure's end (`ValueServers`).

    A closure that reads variables one by one is known by its function: what it read the last time
    is fetched together at its first read. Each of these values serves one read, so that one that
    reads again sees what others changed.

    Args:
      calls: Calls the servers.
    """

    def __init__(self, calls: ServerCalls) -> None:
        self._calls = calls
        self._pending: list[tuple[Key, Operation]] = []
        self._read: dict[int, list[Key]] = {}
        self._fn = -1
        self._expected: list[Key] = []
        self._ahead: dict[Key, np.ndarray] = {}

    def begin(self, fn: int) -> None:
        """Begins a closure."""
        self._fn = fn
        self._expected = self._read.get(fn, [])
        self._read[fn] = []

    def end(self) -> None:
        """Ends a closure: all its changes are at the servers."""
        self._flush()
        self._ahead.clear()
        self._expected = []

    def drop(self) -> None:
        """Gives up changes that could not be sent."""
        self._pending.clear()
        self._ahead.clear()
        self._expected = []

    def make(self, value: np.ndarray, server: int) -> Key:
        """Refuses: a closure that runs twice would make two variables."""
        del value, server
        raise ContextError(
            "A variable was made in a function that a worker runs. Make variables in the "
            "coordinator, in strategy.scope(), and use them in the function."
        )

    def read(self, keys: Sequence[Key]) -> list[np.ndarray]:
        """Returns values."""
        self._flush()
        if len(keys) != 1:
            return self._calls.read(keys)
        (key,) = keys
        if self._fn in self._read and key not in self._read[self._fn]:
            self._read[self._fn].append(key)
        if key not in self._ahead:
            wanted = list(dict.fromkeys([key, *self._expected]))
            self._expected = []
            self._ahead.update(zip(wanted, self._calls.read(wanted), strict=True))
        return [self._ahead.pop(key)]

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values, at the latest when the closure ends."""
        self._pending += updates
        for key, _ in updates:
            self._ahead.pop(key, None)
        if len(self._pending) >= _MOST_PENDING:
            self._flush()

    def read_packed(self, parts: Sequence[PackedValues]) -> list[np.ndarray]:
        """Returns the bytes of values that a program reads."""
        self._flush()
        return self._calls.read_packed(parts)

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        """Changes values by operations that a program returned, at once."""
        self._flush()
        for part, _ in parts:
            for change in part.changes:
                self._ahead.pop(change.key, None)
        self._calls.change_packed(parts)

    def forget(self, key: Key) -> None:
        """Frees a value."""
        self._calls.forget(key)

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self._calls.update(pending)
