"""Calls of parameter servers, by a worker or by the coordinator."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from distlab.errors import ClusterError
from distlab.integrations.dask.packing import as_text, description, packed, sent, unpacked
from distlab.integrations.dask.server_channels import ServerChannels
from distlab.text.shown import shown
from distlab.variables.operations import Operation
from distlab.variables.remote_storage import Key, PackedChanges, PackedValues
from distlab.variables.server_traffic import WorkerTraffic

_KEPT: Final = 256
"""Programs' messages that are kept."""


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

    def read_packed(self, parts: Sequence[PackedValues]) -> list[np.ndarray]:
        """Returns the bytes of values."""
        traffic = self._traffic
        messages = {part.server: _reading(part) for part in parts}
        if traffic is None:
            answers = self._channels.call(messages)
        else:
            answers = self._channels.call(messages, traffic.read_sent)
        found = []
        for part in parts:
            versions, described, buffer = answers[part.server]
            _require_kinds(part, described)
            found.append(np.frombuffer(buffer, np.uint8))
            if traffic is not None:
                traffic.read_all(part.server, part.keys, versions, len(buffer))
        return found

    def update(self, updates: Sequence[tuple[Key, Operation]]) -> None:
        """Changes values."""
        by_server: dict[int, list[tuple[Key, Operation]]] = {}
        for key, operation in updates:
            by_server.setdefault(key.server, []).append((key, operation))
        messages = {server: _packed_changes(own) for server, own in by_server.items()}
        changed = {server: tuple([key for key, _ in own]) for server, own in by_server.items()}
        self._change(messages, changed)

    def change_packed(self, parts: Sequence[tuple[PackedChanges, np.ndarray]]) -> None:
        """Changes values."""
        messages = {part.server: (*_changing(part), sent(buffer)) for part, buffer in parts}
        self._change(messages, {part.server: _keys(part) for part, _ in parts})

    def _change(
        self, messages: Mapping[int, tuple[Any, ...]], changed: Mapping[int, tuple[Key, ...]]
    ) -> None:
        if self._traffic is None:
            self._channels.call(messages)
            return
        answers = self._channels.call(messages, self._traffic.change_sent)
        for server, keys in changed.items():
            *_, buffer = messages[server]
            size = memoryview(buffer).nbytes
            self._traffic.changed_all(server, keys, answers[server], size)

    def forget(self, key: Key) -> None:
        """Frees a value, some time; a server that is lost has freed it."""
        self._channels.forget(key.server, key.number)


def _packed_changes(updates: Sequence[tuple[Key, Operation]]) -> tuple[Any, ...]:
    changes = tuple((key.number, change.verb, len(change.operands)) for key, change in updates)
    described, buffer = packed(
        [np.asarray(operand) for _, change in updates for operand in change.operands]
    )
    return "update", as_text(changes), described, sent(buffer)


@functools.lru_cache(_KEPT)
def _reading(part: PackedValues) -> tuple[str, str]:
    return "read", as_text(tuple(key.number for key in part.keys))


@functools.lru_cache(_KEPT)
def _changing(part: PackedChanges) -> tuple[str, str, str]:
    changes = tuple((change.key.number, change.verb, change.operands) for change in part.changes)
    return "update", as_text(changes), description(part.kinds)


@functools.lru_cache(_KEPT)
def _keys(part: PackedChanges) -> tuple[Key, ...]:
    return tuple(change.key for change in part.changes)


def _require_kinds(part: PackedValues, described: str) -> None:
    """Checks that a server has the values that a program was compiled for."""
    expected = description(part.kinds)
    if described != expected:
        raise ClusterError(
            f"A program reads values of {shown(expected)}, and parameter server {part.server} has "
            f"{shown(described)}. Start all processes with the same settings of JAX, such as "
            "jax_enable_x64."
        )
