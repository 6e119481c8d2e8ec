"""Writes the run files of processes that have no folder in common with this one.

A recording process without a common folder sends its events here, over a connection for which both
ends must know a key, and this process writes its run file. A connection that is lost ends the file,
as that of a process that was killed. What is sent is not encrypted.
"""

from __future__ import annotations

import secrets
import socket
import sqlite3
import struct
import threading
from contextlib import suppress
from multiprocessing import ProcessError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Final

import msgspec

from distlab.errors import DistlabError
from distlab.runs.run_file import RunFile, event_of
from distlab.text.shown import shown_text

MOST_BYTES: Final = 1 << 28
LOST: Final = (OSError, EOFError, ProcessError, AssertionError, msgspec.MsgspecError)
"""The errors of a connection that was lost, or whose other end does not know the key."""

_SILENT_SECONDS: Final = 10
"""The longest silence amid a message; after it, too, the system looks for the other machine."""

_LOOK_SECONDS: Final = 0.5
_FULL_SECONDS: Final = 0.1


class Hello(msgspec.Struct, frozen=True):
    """The first message of a process: the arguments of its `RunFile`, its pid and its host."""

    folder: str
    name: str
    overwrite: bool
    process: int
    processes: int
    clock_offset_ns: int
    pid: int
    host: str


Batch = list[tuple[str, bytes]]
"""Events on their way: the kind and the body of each."""


def connection_of(link: socket.socket, seconds: int = _SILENT_SECONDS) -> Connection:
    """Returns messages over a socket; after so many seconds without an answer it raises OSError."""
    link.setblocking(True)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        link.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("KEEPIDLE", _SILENT_SECONDS), ("KEEPINTVL", 5), ("KEEPCNT", 3)):
        with suppress(AttributeError, OSError):  # not on every system
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"), value)
    return Connection(link.detach())


class Collector:
    """Takes the events of other processes at `port` until it is closed; they must know `key`."""

    def __init__(self, address: str = "", root: Path | None = None) -> None:
        self.key = secrets.token_hex(32)
        self._root = (root or Path()).absolute()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._files = 0
        self._changed = threading.Condition()
        self._closing = False
        threading.Thread(target=self._accept, name="distlab collector", daemon=True).start()

    def close(self, seconds: float = 0.0) -> None:
        """Waits until the processes have ended their recordings, and closes what is left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._files, seconds)
            self._closing = True
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # ends the wait of the thread
            self._listener.close()
            self._changed.wait_for(lambda: not self._files, _SILENT_SECONDS)

    def _accept(self) -> None:
        while not self._closing:
            try:
                link, _ = self._listener.accept()
                threading.Thread(
                    target=self._serve, args=(link,), name="distlab collector", daemon=True
                ).start()
            except (OSError, RuntimeError):  # too many files are open for now, or threads
                threading.Event().wait(_FULL_SECONDS)

    def _serve(self, link: socket.socket) -> None:
        """Writes the file of one process, until it ends or its connection is lost."""
        with suppress(*LOST), connection_of(link) as connection:
            deliver_challenge(connection, self.key.encode())
            answer_challenge(connection, self.key.encode())
            hello = msgspec.msgpack.decode(connection.recv_bytes(MOST_BYTES), type=Hello)
            try:
                file = RunFile(
                    self._root / hello.folder,
                    hello.name,
                    overwrite=hello.overwrite,
                    process=hello.process,
                    processes=hello.processes,
                    clock_offset_ns=hello.clock_offset_ns,
                    of=(hello.pid, hello.host),
                )
            except DistlabError as error:
                connection.send_bytes(str(error).encode())
                return
            if self._write(file, connection):
                connection.send_bytes(b"")

    def _write(self, file: RunFile, connection: Connection) -> bool:
        """Stores a process's events, and closes its file; returns whether the process ended it."""
        with self._changed:
            self._files += 1
        try:
            connection.send_bytes(b"")
            while not self._closing:
                if connection.poll(_LOOK_SECONDS):
                    message = connection.recv_bytes(MOST_BYTES)
                    if not message:
                        return True
                    connection.send_bytes(_stored(file, message).encode())
            return False
        finally:
            file.close()
            with self._changed:
                self._files -= 1
                self._changed.notify_all()


def _stored(file: RunFile, message: bytes) -> str:
    """Stores a batch of events; returns why it can't be stored, empty if it is."""
    batch = msgspec.msgpack.decode(message, type=Batch)
    try:
        file.write([event_of(kind, body) for kind, body in batch])
    except (sqlite3.Error, OSError) as error:
        return shown_text(error) or type(error).__name__
    return ""
