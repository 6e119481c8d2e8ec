"""Files of a run to download: the one-file page, and the timeline for Perfetto."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tornado.iostream import IOStream, StreamClosedError
from tornado.web import RequestHandler

from distlab.errors import DistlabError, NotARunError
from distlab.page import report
from distlab.recording import Run
from distlab_dashboard.arguments import argument
from distlab_dashboard.library import Library
from distlab_dashboard.served_run import ServedRun

FILES: Final = ("run.html", "trace.json")
"""Names of the files."""

MOST_WAITING: Final = 2
"""Exports that wait while another one is made; more are asked to come again."""

MOST_AT_ONCE: Final = 8
"""Exports that are made, wait or are sent at once: each has a file, until its reader has it all."""

RETRY_SECONDS: Final = 5
_CHUNK: Final = 64 << 10
_SEND_SECONDS: Final = 60.0
"""How long a reader may take for a part of its file."""
_STOPPED: Final = "The server was stopped before the file was made."


class BusyError(DistlabError, RuntimeError):
    """A file can't be made now."""


class Exports:
    """Makes the files of a server, one at a time: the training needs its processor as well."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._asked = 0
        self._at_once = 0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="distlab-export")

    @contextmanager
    def held(self, name: str) -> Iterator[ServedRun]:
        """Keeps reading a run for a while."""
        run = self._library.hold(name)
        try:
            yield run
        finally:
            self._library.release(run)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Counts an export from its request until it is sent."""
        if self._at_once >= MOST_AT_ONCE:
            raise BusyError(
                f"The server is sending {MOST_AT_ONCE} files, and no more at once. "
                f"Try again in {RETRY_SECONDS} s."
            )
        self._at_once += 1
        try:
            yield
        finally:
            self._at_once -= 1

    async def make(self, run: ServedRun, path: Path) -> None:
        """Makes a file of the run up to now, after those that were asked for earlier."""
        if self._asked > MOST_WAITING:
            raise BusyError(
                f"The server makes one file at a time, and {MOST_WAITING} more are waiting. "
                f"Try again in {RETRY_SECONDS} s."
            )
        try:
            made = self._worker.submit(_write, run, path)
        except RuntimeError:  # stop() came between the request and its turn
            raise BusyError(_STOPPED) from None
        self._asked += 1
        try:
            await asyncio.wrap_future(made)
        except asyncio.CancelledError:
            raise BusyError(_STOPPED) from None
        finally:
            self._asked -= 1

    def stop(self) -> None:
        """Makes no more files."""
        self._worker.shutdown(wait=False, cancel_futures=True)


class Export(RequestHandler):
    """Answers with a file made from the run up to now, or says in words why there is none."""

    def initialize(self, exports: Exports) -> None:
        """Keeps what makes files; tornado calls it for each request."""
        self._exports = exports

    async def get(self, name: str) -> None:
        """Makes the file in another thread, and sends it."""
        self.set_header("Cache-Control", "no-store")
        try:
            with (
                self._exports.place(),
                self._exports.held(argument(self.request.query_arguments, "run") or "") as run,
                tempfile.TemporaryDirectory(prefix="distlab-export-") as folder,
            ):
                path = Path(folder) / name
                await self._exports.make(run, path)
                self._describe(run, name)
                await self._send(path)
        except BusyError as error:
            self.set_header("Retry-After", str(RETRY_SECONDS))
            self._refuse(503, error)
        except NotARunError as error:
            self._refuse(404, error)
        except DistlabError as error:
            self._refuse(409, error)
        except OSError as error:
            why = f"The file can't be made: {error.strerror or error}, in {tempfile.gettempdir()}."
            self._refuse(507, DistlabError(why))

    async def head(self, name: str) -> None:
        """Says what kind of file there is, without making it: so its length is not known."""
        self.set_header("Cache-Control", "no-store")
        try:
            with self._exports.held(argument(self.request.query_arguments, "run") or "") as run:
                self._describe(run, name)
        except NotARunError as error:
            self._refuse(404, error)
        else:
            await self.flush()

    def _describe(self, run: ServedRun, name: str) -> None:
        known = run.feed.path
        kind = "text/html; charset=utf-8" if name.endswith(".html") else "application/json"
        self.set_header("Content-Type", kind)
        title = f"{known.name if known else 'run'}-{name}"
        self.set_header("Content-Disposition", attachment_named(title))

    def _refuse(self, status: int, error: DistlabError) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(str(error))

    async def _send(self, path: Path) -> None:
        self.set_header("Content-Length", str(path.stat().st_size))
        answered: Any = self.request.connection
        stream: IOStream = answered.stream
        with path.open("rb") as file, _sent_in_parts(stream):
            while part := file.read(_CHUNK):
                self.write(part)
                try:
                    await asyncio.wait_for(self.flush(), _SEND_SECONDS)
                except StreamClosedError:  # the reader went away
                    return
                except TimeoutError:  # it has stalled; tornado would log that the file is not whole
                    stream.close()
                    return


@contextmanager
def _sent_in_parts(stream: IOStream) -> Iterator[None]:
    """Lets `_SEND_SECONDS` alone tell who has stalled from who reads slowly.

    The system would take megabytes at once, and then nothing until a third of them is read. And
    Linux' limit (`STALL_SECONDS`) also ends readers whose small buffer is never empty.
    """
    if stream.closed():
        yield
        return
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _CHUNK)
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        yield
        return
    stall_ms = stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)
    try:
        yield
    finally:
        if not stream.closed():
            stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)


def attachment_named(title: str) -> str:
    """Returns the header that names a download, also by letters that no header has (RFC 6266)."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in title)
    plain = "".join(letter if letter.isascii() else "-" for letter in safe)
    named = f'attachment; filename="{plain}"'
    return named if plain == safe else f"{named}; filename*=UTF-8''{quote(safe)}"


def _write(run: ServedRun, path: Path) -> None:
    source = run.feed.source
    if path.suffix == ".html":
        report.write(source, run.name, path)
    elif isinstance(source, Run):
        source.export(path)
    else:
        raise DistlabError("Only a run in a folder has a timeline. Record the run to a folder.")
