"""A small answer for health checks, which makes no session."""

from __future__ import annotations

import os
from typing import TypedDict

from tornado.web import RequestHandler

from distlab_dashboard.library import Library


class About(TypedDict):
    """What a server reports of itself.

    Attributes:
      url: Address of the page.
      version: Version of distlab.
    """

    url: str
    version: str


class Health(RequestHandler):
    """Answers with JSON: which server this is, and how far the run was read."""

    def initialize(self, library: Library, about: About) -> None:
        """Keeps what to report; tornado calls it for each request."""
        self._library = library
        self._about = about

    def get(self) -> None:
        """Writes the answer."""
        self.set_header("Cache-Control", "no-store")
        self.write({**self._about, "pid": os.getpid(), **self._runs()})

    def head(self) -> None:
        """Writes the headers of the answer."""
        self.get()

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
