"""One process of a cluster with all that it starts: its output, its signals and its end."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Literal, TypeAlias

from distlab.launching.warden import Warden
from distlab.threads import Thread

Stream: TypeAlias = Literal["out", "err"]
Write: TypeAlias = Callable[[Stream, str, bytes], None]
"""Receives each line of output: the stream, the process's name, and the line without its end."""

_LAST_OUTPUT_SECONDS = 5.0


class WorkerProcess:
    """A process in a group of its own, which ends as a whole; `code` is None while it runs."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        warden: Warden,
        write: Write,
        ended: Callable[[WorkerProcess], None],
    ) -> None:
        self.name = name
        self.code: int | None = None
        self._write = write
        self._ended = ended
        self._warden = warden
        self._lock = threading.Lock()
        self._reaped = False
        self._process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a group of its own, that a terminal's Ctrl-C does not reach
        )
        warden.watch(self._process.pid)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            self._thread(self._pass_on, "out", self._process.stdout),
            self._thread(self._pass_on, "err", self._process.stderr),
        ]
        self._waiter = self._thread(self._wait)

    @property
    def pid(self) -> int:
        """The number of the process, and of its group."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process and all that it started; none once it has ended."""
        with self._lock:
            if not self._reaped:
                os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kills the process and all that it started, and waits until they have ended."""
        self.signal(signal.SIGKILL)
        self._waiter.join()

    def _thread(self, work: Callable[..., None], *args: object) -> Thread:
        thread = Thread(work, *args, name=self.name)
        thread.start()
        return thread

    def _pass_on(self, stream: Stream, pipe: IO[bytes]) -> None:
        for line in lines_of(pipe):
            self._write(stream, self.name, line)

    def _wait(self) -> None:
        # Until it is reaped no other group can have its number.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # what it has left behind
            self.code = self._process.wait()
            self._reaped = True
        self._warden.forget(self.pid)
        for reader in self._readers:
            reader.join(_LAST_OUTPUT_SECONDS)
        self._ended(self)


def lines_of(pipe: IO[bytes]) -> Iterator[bytes]:
    """Yields lines without their ends as they come; a progress bar's carriage return ends one."""
    # Latin-1 keeps every byte as it is; only the reader's knowledge of line ends is wanted.
    with io.TextIOWrapper(pipe, encoding="latin-1", newline="") as lines:
        for line in lines:
            if line != "\r":
                yield line.rstrip("\r\n").encode("latin-1")
