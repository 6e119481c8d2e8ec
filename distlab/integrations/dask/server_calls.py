"""Calls of parameter servers, by a worker or by the coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from distlab.integrations.dask.packing import as_text, packed, sent, unpacked
from distlab.integrations.dask.server_channels import ServerChannels
from distlab.variables.operations import Operation
from distlab.variables.remote_storage import Key
from distlab.variables.server_traffic import WorkerTraffic


@final
class ServerCalls:
    """The parameter servers of a session (`ValueServers`). Each call is one message a server.

    Args:
      channels: The connections to the servers.
      traffic: Counts what is read and changed, and the messages; None for nothing.
    """

    def __init__(self, channels: ServerChannels, traffic: WorkerTraffic | None = None) -> None:
        self._channels = channels
        self._traffic = traffic

    def make(self, value: np.ndarray, server: int) -> Key:
        """Stores a value on a server."""
        described, buffer = packed([value])
        message = ("make", described, sent(buffer))
        return Key(server, self._channels.call({server: message})[server])

    def read(self, keys: Sequence[Key]) -> list[np.ndarray]:
        """Returns values."""
        numbers: dict[int, list[int]] = {}
        for key in keys:
            numbers.setdefault(key.server, []).append(key.number)
        messages = {server: ("read", as_text(tuple(own))) for server, own in numbers.items()}
        if self._traffic is None:
            answers = self._channels.call(messages)
        else:
            answers = self._channels.call(messages, self._traffic.read_sent)
        values = {
            server: zip(versions, unpacked(described, buffer), strict=True)
            for server, (versions, described, buffer) in answers.items()
        }
        found = []
        for key in keys:
            version, value = next(values[key.server])
            found.append(value)
            if self._traffic is not None:
                self._traffic.read(key.server, key, version, value.nbytes)
        return found

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values."""
        by_server: dict[int, list[tuple[Key, Operation]]] = {}
        for key, operation in updates:
            by_server.setdefault(key.server, []).append((key, operation))
        messages = {server: ("update", *_packed_changes(own)) for server, own in by_server.items()}
        if self._traffic is None:
            self._channels.call(messages)
            return
        answers = self._channels.call(messages, self._traffic.change_sent)
        for server, own in by_server.items():
            for (key, change), before in zip(own, answers[server], strict=True):
                size = sum(np.asarray(operand).nbytes for operand in change.operands)
                self._traffic.changed(server, key, before, size)

    def forget(self, key: Key) -> None:
        """Frees a value, some time; a server that is lost has freed it."""
        self._channels.forget(key.server, key.number)


def _packed_changes(updates: Sequence[tuple[Key, Operation]]) -> tuple[str, str, Any]:
    changes = tuple((key.number, change.verb, len(change.operands)) for key, change in updates)
    described, buffer = packed(
        [np.asarray(operand) for _, change in updates for operand in change.operands]
    )
    return as_text(changes), described, sent(buffer)
