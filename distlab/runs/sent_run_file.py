"""A run file that another process writes: its events are sent there."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from distlab.errors import RecordError
from distlab.events import Event, Lost, Unknown, kind_of
from distlab.runs.channel import Channel
from distlab.runs.collector import Answer, Hello
from distlab.runs.run_file import encoded, file_of

_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 20.0
_MOST_AT_ONCE: Final = 1 << 22
"""Bytes of events after which the answer is awaited."""


class SentRunFile:
    """A run file that a `Collector` writes, by one thread at a time.

    It has the verbs of a `RunFile`. A connection that is lost is made again with the next events.

    Attributes:
      path: The file, as the collector names it.

    Raises:
      RecordError: The folder can't be created or written there, or holds a run.
      OSError: The collector can't be reached.
    """

    def __init__(
        self,
        address: tuple[str, int],
        key: str,
        folder: Path,
        name: str,
        *,
        overwrite: bool = False,
        process: int = 0,
        processes: int = 1,
        clock_offset_ns: int = 0,
    ) -> None:
        self.path = file_of(folder, process)
        self._address = address
        self._key = key
        self._hello = Hello(
            session=secrets.token_hex(16),
            folder=str(folder),
            name=name,
            overwrite=overwrite,
            process=process,
            processes=processes,
            clock_offset_ns=clock_offset_ns,
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        self._end = 0
        self._sent: list[Event | Unknown] = []  # without an answer yet
        self._done: list[Event | Unknown] = []  # stored by a write that failed later on
        self._channel: Channel | None = None
        self._connect()

    def write(self, events: Sequence[Event | Unknown]) -> list[Lost]:
        """Has events stored after those already stored.

        Called again with the same events after an error, it does not store any of them twice.
        """
        if self._channel is None:
            self._connect()
        done = {id(event) for event in self._done}
        replaced: list[Lost] = []
        part: list[tuple[str, bytes]] = []
        size = 0
        for event in events:
            if id(event) in done:
                continue
            stored, body = encoded(event)
            if stored is not event and isinstance(stored, Lost):
                replaced.append(stored)
            part.append((kind_of(stored), body))
            self._sent.append(event)
            size += len(body)
            if size >= _MOST_AT_ONCE:
                self._send(part)
                part, size = [], 0
        if part:
            self._send(part)
        self._done = []
        return replaced

    def write_last(self, events: Sequence[Event | Unknown]) -> None:
        """Has the last events stored."""
        self.write(events)

    def close(self) -> None:
        """Has the file closed. Never raises."""
        channel, self._channel = self._channel, None
        if channel is not None:
            try:
                channel.send(b"")
                channel.receive()
            except OSError:
                pass  # the collector closes it when nobody comes again
            channel.close()

    def abandon(self) -> None:
        """Releases the connection in a forked child: it belongs to the parent."""
        if self._channel is not None:
            self._channel.abandon()

    def _send(self, part: list[tuple[str, bytes]]) -> None:
        assert self._channel is not None
        try:
            answer = _ask(self._channel, msgspec.msgpack.encode(part))
        except OSError:
            self._channel.close()
            self._channel = None
            raise
        if answer.error:
            self._sent = []
            raise OSError(answer.error)
        self._note_stored(answer.stored)

    def _connect(self) -> None:
        """Connects, and learns how many events are stored."""
        try:
            link = socket.create_connection(self._address, _CONNECT_SECONDS)
        except OSError as error:
            host, port = self._address
            raise OSError(f"{host}:{port}, which writes the run's files: {error}") from error
        channel = Channel(link)
        try:
            channel.wait_at_most(_ANSWER_SECONDS)
            channel.prove(self._key)
            hello = msgspec.structs.replace(self._hello, stored=self._end)
            answer = _ask(channel, msgspec.msgpack.encode(hello))
            if answer.error:
                raise RecordError(answer.error)
        except BaseException:
            channel.close()
            raise
        self._channel = channel
        self._note_stored(answer.stored)

    def _note_stored(self, stored: int) -> None:
        """Notes how many events the file has; what was sent is in it, or not at all."""
        if stored > self._end:
            self._done += self._sent
        self._end = stored
        self._sent = []


def _ask(channel: Channel, message: bytes) -> Answer:
    channel.send(message)
    try:
        return msgspec.msgpack.decode(channel.receive(), type=Answer)
    except msgspec.MsgspecError as error:
        raise ConnectionError("the collector answers in another language") from error
