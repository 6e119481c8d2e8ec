"""Files of a run to download: the one-file page, and the timeline for Perfetto."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

from distlab.errors import DistlabError, NotARunError
from distlab.page import report
from distlab.recording import Run
from distlab_dashboard.access.arguments import argument
from distlab_dashboard.library import Library
from distlab_dashboard.served_run import ServedRun

FILES: Final = ("run.html", "trace.json")
"""Names of the files."""

MOST_AT_ONCE: Final = 4
"""Exports that are made, wait or are sent at once: each has a file, until its reader has it all."""

RETRY_SECONDS: Final = 5
_CHUNK: Final = 64 << 10
_SEND_SECONDS: Final = 60.0
"""The longest time that a reader may take for a part of its file."""


class BusyError(DistlabError, RuntimeError):
    """A file can't be made now."""


class Exports:
    """Makes the files of a server, one at a time: the training needs its processor as well."""

    def __init__(self, library: Library) -> None:
        self._library = library
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
                f"The server makes one file at a time, and {MOST_AT_ONCE} are being made or sent. "
                f"Try again in {RETRY_SECONDS} s."
            )
        self._at_once += 1
        try:
            yield
        finally:
            self._at_once -= 1

    async def make(self, run: ServedRun, path: Path) -> None:
        """Makes a file of the run up to now, after those that were asked for earlier."""
        await asyncio.wrap_future(self._worker.submit(_write, run, path))

    def stop(self) -> None:
        """Makes no more files."""
        self._worker.shutdown(wait=False, cancel_futures=True)


class Export(RequestHandler):
    """Answers with a file made from the run up to now, or explains why there is none."""

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
        except (DistlabError, OSError) as error:  # such as a full disk
            self._refuse(409, error)

    def _describe(self, run: ServedRun, name: str) -> None:
        known = run.feed.path
        kind = "text/html; charset=utf-8" if name.endswith(".html") else "application/json"
        self.set_header("Content-Type", kind)
        title = f"{known.name if known else 'run'}-{name}"
        self.set_header("Content-Disposition", attachment_named(title))

    def _refuse(self, status: int, error: Exception) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(str(error))

    async def _send(self, path: Path) -> None:
        self.set_header("Content-Length", str(path.stat().st_size))
        answered: Any = self.request.connection
        with path.open("rb") as file:
            while part := file.read(_CHUNK):
                self.write(part)
                try:
                    await asyncio.wait_for(self.flush(), _SEND_SECONDS)
                except StreamClosedError:  # the reader went away
                    return
                except TimeoutError:  # it has stalled; tornado would log that the file is not whole
                    answered.stream.close()
                    return


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
