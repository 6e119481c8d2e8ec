"""A run file that another process writes: its events are sent there."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import answer_challenge, deliver_challenge
from pathlib import Path
from typing import Final

import msgspec

from distlab.errors import RecordError
from distlab.events import Event, Lost, Unknown, kind_of
from distlab.runs.collector import LOST, MOST_BYTES, Hello, connection_of
from distlab.runs.run_file import encoded, file_of, replaced

_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 20


class SentRunFile:
    """A run file that a `Collector` writes, with the verbs of a `RunFile`.

    Raises RecordError where the folder can't be written there, or holds a run, and OSError where
    the collector can't be reached. A connection that is lost stays lost.
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
        hello = Hello(
            folder=str(folder),
            name=name,
            overwrite=overwrite,
            process=process,
            processes=processes,
            clock_offset_ns=clock_offset_ns,
            pid=os.getpid(),
            host=socket.gethostname(),
        )
        try:
            link = socket.create_connection(address, _CONNECT_SECONDS)
            self._connection = connection_of(link, _ANSWER_SECONDS)
            answer_challenge(self._connection, key.encode())
            deliver_challenge(self._connection, key.encode())
        except LOST as error:
            why = f"{address[0]}:{address[1]}, which writes the run's files: {error}"
            raise OSError(why) from error
        if refused := self._ask(msgspec.msgpack.encode(hello)):
            self._connection.close()
            raise RecordError(refused)

    def write(self, events: Sequence[Event | Unknown]) -> list[Lost]:
        """Has events stored after those already stored, all or none."""
        stored = [encoded(event) for event in events]
        batch = [(kind_of(event), body) for event, body in stored]
        if batch and (why := self._ask(msgspec.msgpack.encode(batch))):
            raise OSError(why)
        return replaced(stored, events)

    def close(self) -> None:
        """Has the file closed. Never raises."""
        with suppress(OSError):  # the collector closes it when the connection is lost
            self._ask(b"")
        self.abandon()

    def abandon(self) -> None:
        """Releases the connection; in a forked child it goes on as the parent's."""
        self._connection.close()

    def _ask(self, message: bytes) -> str:
        """Sends a message, and returns what the collector answers: the reason of a refusal."""
        try:
            self._connection.send_bytes(message)
            return self._connection.recv_bytes(MOST_BYTES).decode()
        except LOST as error:
            self._connection.close()
            reason = str(error) or "the other end closed the connection"
            raise ConnectionError(f"the run's events can't be sent: {reason}") from error
