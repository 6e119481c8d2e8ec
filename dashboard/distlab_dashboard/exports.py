"""Files of a run to download: the one-file page, and the timeline for Perfetto."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler

from distlab.errors import DistlabError, NotARunError
from distlab.page import report
from distlab.recording import Run
from distlab_dashboard.access import allowed
from distlab_dashboard.library import Library
from distlab_dashboard.served_run import ServedRun

_CHUNK: Final = 1 << 20
FILES: Final = ("run.html", "trace.json")
"""Names of the files."""


class Export(RequestHandler):
    """Answers with a file made from the run up to now."""

    def initialize(self, library: Library, token: str) -> None:
        """Keeps what to serve; tornado calls it for each request.

        Args:
          library: The server's runs.
          token: The token that a request must have, empty for none.
        """
        self._library = library
        self._token = token

    async def get(self, name: str) -> None:
        """Makes the file in another thread, and sends it."""
        if self._token and not allowed(self, self._token):
            raise HTTPError(401)
        try:
            run = self._library.hold(self.get_query_argument("run", ""))
        except NotARunError as error:
            raise HTTPError(404) from error
        try:
            with tempfile.TemporaryDirectory(prefix="distlab-export-") as folder:
                path = Path(folder) / name
                await asyncio.get_running_loop().run_in_executor(None, _write, run, path)
                known = run.feed.path
                await self._send(path, f"{known.name if known else 'run'}-{name}")
        finally:
            self._library.release(run)

    async def _send(self, path: Path, title: str) -> None:
        safe = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in title)
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


def _write(run: ServedRun, path: Path) -> None:
    source = run.feed.source
    if path.suffix == ".html":
        report.write(source, run.name, path)
    elif isinstance(source, Run):
        source.export(path)
    else:
        raise DistlabError("Only a run in a folder has a timeline. Record the run to a folder.")
