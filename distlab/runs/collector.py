"""Writes the run files of processes that have no folder in common with this one.

A recording process without a common folder sends its events here, over an authenticated
connection, and this process writes its run file. A connection that is lost may come again
for half a minute; then the file is closed, as that of a process that was killed.
"""

from __future__ import annotations

import secrets
import socket
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from distlab.errors import DistlabError, RecordError
from distlab.runs.channel import Channel
from distlab.runs.run_file import RunFile, event_of
from distlab.text.shown import shown_text

_PROOF_SECONDS: Final = 10.0
_MOST_STRANGERS: Final = 64
"""The most connections without a proof at once: each has a thread and a file descriptor."""

_FULL_SECONDS: Final = 0.1
_AWAY_SECONDS: Final = 30.0
"""The longest absence of a process whose connection was lost."""


class Hello(msgspec.Struct, frozen=True):
    """The first message of a process.

    Attributes:
      session: Names its recording, also after a lost connection.
      folder: The run's folder.
      name: The run's name.
      overwrite: Whether a run that the folder holds is replaced.
      process: Its number among the processes of the run.
      processes: Number of these processes.
      clock_offset_ns: Nanoseconds to add to its clock to get that of process 0.
      pid: Its number on its machine.
      host: The name of its machine.
      stored: How many of its events are in the file, as far as it knows.
    """

    session: str
    folder: str
    name: str
    overwrite: bool
    process: int
    processes: int
    clock_offset_ns: int
    pid: int
    host: str
    stored: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The answer to this and to each batch of events.

    Attributes:
      stored: How many of its events are in the file.
      error: Why the file can't be written; empty when all is well.
    """

    stored: int = 0
    error: str = ""


Batch = list[tuple[str, bytes]]
"""Events on their way: the kind and the body of each."""


class _Held:
    """A run file that is written for another process.

    Attributes:
      file: The file.
      stored: How many events it has.
      channel: The connection from which it is written.
      is_away: Whether that was lost.
      lock: Held while it is written or closed.
    """

    def __init__(self, file: RunFile, channel: Channel) -> None:
        self.file = file
        self.stored = 0
        self.channel = channel
        self.is_away = False
        self.lock = threading.Lock()


class Collector:
    """Takes the events of other processes until it is closed.

    Attributes:
      port: The port at which it listens.
      key: What a process must know to send events.
    """

    def __init__(self, address: str = "", root: Path | None = None) -> None:
        self.key = secrets.token_hex(32)
        self._root = (root or Path()).absolute()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family)
        self.port: int = self._listener.getsockname()[1]
        self._held: dict[str, _Held] = {}
        self._strangers: dict[Channel, None] = {}
        self._changed = threading.Condition()
        self._closing = False
        threading.Thread(target=self._accept, name="distlab collector", daemon=True).start()

    def close(self, seconds: float = 0.0) -> None:
        """Waits until the processes have ended their recordings, and closes what is left."""
        with self._changed:
            self._changed.wait_for(lambda: all(h.is_away for h in self._held.values()), seconds)
            self._closing = True
            self._changed.notify_all()
            left = [*(held.channel for held in self._held.values()), *self._strangers]
        self._listener.close()
        for channel in left:
            channel.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._held, _PROOF_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                if self._closing:
                    return
                threading.Event().wait(_FULL_SECONDS)  # too many files are open for now
                continue
            try:
                channel = Channel(link)
                self._admit(channel)
                threading.Thread(
                    target=self._serve, args=(channel,), name="distlab collector", daemon=True
                ).start()
            except (OSError, RuntimeError):  # it is lost already, or there are too many threads
                link.close()

    def _admit(self, channel: Channel) -> None:
        """Counts a connection without a proof; of too many it closes the one that came first."""
        with self._changed:
            self._strangers[channel] = None
            if len(self._strangers) > _MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.hang_up()

    def _greeted(self, channel: Channel) -> Hello | None:
        """Returns what a process says first, after its proof; None of a stranger."""
        try:
            channel.wait_at_most(_PROOF_SECONDS, in_all=True)
            channel.ask_for_proof(self.key)
            hello = msgspec.msgpack.decode(channel.receive(), type=Hello)
            channel.wait_at_most(None)
        except (OSError, msgspec.MsgspecError):
            channel.close()
            return None
        finally:
            with self._changed:
                self._strangers.pop(channel, None)
        return hello

    def _serve(self, channel: Channel) -> None:
        """Writes the file of one process, until it ends or its connection is lost."""
        hello = self._greeted(channel)
        if hello is None:
            return
        try:
            held = self._held_for(hello, channel)
        except DistlabError as error:
            _answer(channel, Answer(error=str(error)))
            channel.close()
            return
        ended = False
        try:
            _answer(channel, Answer(held.stored))
            while message := channel.receive():
                _answer(channel, _stored(held, message))
            ended = True
        except (OSError, msgspec.MsgspecError):
            pass  # it may come again
        self._leave(hello.session, held, channel, ended=ended)
        if ended:
            _answer(channel, Answer(held.stored))
        channel.close()

    def _held_for(self, hello: Hello, channel: Channel) -> _Held:
        """Returns a process's file: a new one, or that of a connection that was lost."""
        with self._changed:
            held = self._held.get(hello.session)
            if held is not None:
                held.channel.close()
                with held.lock:
                    held.channel, held.is_away = channel, False
                self._changed.notify_all()
                return held
            if hello.stored:
                raise RecordError(
                    f"Process {hello.process} of the run {hello.folder} was away for longer than "
                    f"{_AWAY_SECONDS:g} s, and its file was closed. Record to another folder."
                )
            file = RunFile(
                self._root / hello.folder,
                hello.name,
                overwrite=hello.overwrite,
                process=hello.process,
                processes=hello.processes,
                clock_offset_ns=hello.clock_offset_ns,
                of=(hello.pid, hello.host),
            )
            held = self._held[hello.session] = _Held(file, channel)
            return held

    def _leave(self, session: str, held: _Held, channel: Channel, *, ended: bool) -> None:
        """Closes a file whose process has ended, or does not come back."""

        def is_taken_over() -> bool:
            return held.channel is not channel

        with self._changed:
            if not ended and not is_taken_over():
                held.is_away = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: is_taken_over() or self._closing, _AWAY_SECONDS)
            if is_taken_over():
                return
            with held.lock:
                held.file.close()
            del self._held[session]
            self._changed.notify_all()


def _stored(held: _Held, message: bytes) -> Answer:
    batch = msgspec.msgpack.decode(message, type=Batch)
    events = [event_of(kind, body) for kind, body in batch]
    with held.lock:
        try:
            held.file.write(events)
        except (sqlite3.Error, OSError, DistlabError) as error:
            return Answer(held.stored, shown_text(error) or type(error).__name__)
        held.stored += len(events)
        return Answer(held.stored)


def _answer(channel: Channel, answer: Answer) -> None:
    with suppress(OSError):  # who does not receive it comes again, and is answered then
        channel.send(msgspec.msgpack.encode(answer))
