"""Files of a run to take away: the one-file page, and the timeline for Perfetto."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler

from distlab.errors import DistlabError, NotARunError
from distlab.page import report
from distlab.recording import Run
from distlab_dashboard.access import allowed
from distlab_dashboard.feed import Feed
from distlab_dashboard.library import Library

_CHUNK: Final = 1 << 20
FILES: Final = ("run.html", "trace.json")
"""What can be taken away, by name."""


class Export(RequestHandler):
    """Answers with a file made from the run as it is now."""

    def initialize(self, library: Library, token: str) -> None:
        """Takes where runs come from and the token to ask for."""
        self._library = library
        self._token = token

    async def get(self, name: str) -> None:
        """Makes the file in another thread, and sends it."""
        if self._token and not allowed(self, self._token):
            raise HTTPError(401)
        try:
            feed = self._library.hold(self.get_query_argument("run", ""))
        except NotARunError as error:
            raise HTTPError(404) from error
        try:
            with tempfile.TemporaryDirectory(prefix="distlab-export-") as folder:
                path = Path(folder) / name
                await asyncio.get_running_loop().run_in_executor(None, _write(feed, path))
                await self._send(path, f"{feed.path.name if feed.path else 'run'}-{name}")
        finally:
            self._library.release(feed)

    async def _send(self, path: Path, called: str) -> None:
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in called)
        kind = "text/html; charset=utf-8" if path.suffix == ".html" else "application/json"
        self.set_header("Content-Type", kind)
        self.set_header("Content-Disposition", f'attachment; filename="{safe}"')
        self.set_header("Content-Length", str(path.stat().st_size))
        self.set_header("Cache-Control", "no-store")
        with path.open("rb") as file:
            while part := file.read(_CHUNK):
                self.write(part)
                try:
                    await self.flush()
                except StreamClosedError:  # the reader went away
                    return


def _write(feed: Feed, path: Path) -> Callable[[], None]:
    def write() -> None:
        if path.suffix == ".html":
            report.write(feed.source, feed.path.name if feed.path else "this process", path)
        elif isinstance(feed.source, Run):
            feed.source.export(path)
        else:
            raise DistlabError("Only a run in a folder has a timeline. Record to one.")

    return write
