"""`/health` and `/metrics`: small answers that make no session."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from tornado.web import RequestHandler

from distlab.errors import NotARunError
from distlab.runs.damage import as_damage
from distlab_dashboard.access.arguments import argument
from distlab_dashboard.library import Library
from distlab_dashboard.metrics import exposition, families_of_folder, families_of_run
from distlab_dashboard.served_run import ServedRun

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_RETRY_SECONDS: Final = 5
_WAIT_SECONDS: Final = 5.0
"""The longest time that an answer waits for the run's past; Prometheus waits 10 s for it."""

_LOOK_SECONDS: Final = 0.05


class Health(RequestHandler):
    """Answers with JSON: the server, and how far the run was read."""

    def initialize(self, library: Library, about: dict[str, str]) -> None:
        """Keeps what to report; tornado calls it for each request."""
        self._library = library
        self._about = about

    def get(self) -> None:
        """Writes the answer."""
        self.set_header("Cache-Control", "no-store")
        self.write({**self._about, "pid": os.getpid(), **self._runs()})

    head = get

    def _runs(self) -> dict[str, object]:
        if not self._library.single:
            return {"runs": len(self._library.summaries()) + self._library.left_out}
        run = self._library.hold("")
        self._library.release(run)
        feed = run.feed
        header = feed.folds.columns("header")
        return {
            "run": header["name"],
            "path": str(feed.path) if feed.path else None,
            "status": header["status"] or ("live" if feed.live else "killed"),
            "cursor": feed.folds.cursor,
            "lost": feed.folds.lost,
        }


class Metrics(RequestHandler):
    """Answers with the figures of the run, or of those in the folder that go on."""

    def initialize(self, library: Library) -> None:
        """Keeps the runs; tornado calls it for each request."""
        self._library = library

    async def get(self) -> None:
        """Writes the figures; 503 when the run's past takes long to read."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Type", _CONTENT_TYPE)
        name = argument(self.request.query_arguments, "run") or ""
        if not name and not self._library.single:
            runs = self._library.summaries()
            self.finish(exposition(families_of_folder(runs, self._library.left_out)))
            return
        try:
            run = self._library.hold(name)
        except NotARunError as error:
            self._refuse(404, str(error))
            return
        try:
            until = time.monotonic() + _WAIT_SECONDS
            while not run.feed.caught_up and not run.trouble and time.monotonic() < until:
                await asyncio.sleep(_LOOK_SECONDS)
            if run.trouble:
                self._refuse(500, f"The run can't be read any further: {run.trouble}")
            elif not run.feed.caught_up:
                self.set_header("Retry-After", str(_RETRY_SECONDS))
                self._refuse(503, "The run is being read. Try again.")
            else:
                with as_damage(run.feed.path, "counted", "its page may hold more of it"):
                    text = self._figures(run, name)
                self.finish(text)
        except NotARunError as error:
            self._refuse(500, str(error))
        finally:
            self._library.release(run)

    head = get

    @staticmethod
    def _figures(run: ServedRun, name: str) -> bytes:
        folds = run.feed.folds
        label = name or folds.columns("header")["name"] or run.name
        return exposition(
            families_of_run(folds, run.advice, name=label, live=run.feed.live, now_s=run.feed.now_s)
        )

    def _refuse(self, status: int, text: str) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{text}\n")
