"""A small answer for health checks, which makes no session."""

from __future__ import annotations

import os
from typing import Any

from tornado.web import HTTPError, RequestHandler

from distlab_dashboard.access import allowed
from distlab_dashboard.library import Library


class Health(RequestHandler):
    """Answers with JSON: who serves which run, and how far it was read."""

    def initialize(self, library: Library, about: dict[str, Any], token: str) -> None:
        """Takes what to report and the token to ask for; tornado calls it for each request."""
        self._library = library
        self._about = about
        self._token = token

    def get(self) -> None:
        """Writes the answer."""
        if self._token and not allowed(self, self._token):
            raise HTTPError(401)
        self.set_header("Cache-Control", "no-store")
        self.write({**self._about, "pid": os.getpid(), **self._what()})

    def _what(self) -> dict[str, Any]:
        if not self._library.single:
            return {"runs": len(self._library.summaries())}
        feed = self._library.hold("")
        header = feed.folds.columns("header")
        return {
            "run": header["name"],
            "path": str(feed.path) if feed.path else None,
            "status": header["status"] or ("live" if feed.live else "killed"),
            "cursor": feed.folds.cursor,
            "lost": feed.folds.lost,
        }
