"""A small answer for health checks, which makes no session."""

from __future__ import annotations

import os
from typing import Any

from tornado.web import HTTPError, RequestHandler

from distlab_dashboard.access import allowed
from distlab_dashboard.feed import Feed


class Health(RequestHandler):
    """Answers with JSON: who serves which run, and how far it was read."""

    def initialize(self, feed: Feed, about: dict[str, Any], token: str) -> None:
        """Takes what to report and the token to ask for; tornado calls it for each request."""
        self._feed = feed
        self._about = about
        self._token = token

    def get(self) -> None:
        """Writes the answer."""
        if self._token and not allowed(self, self._token):
            raise HTTPError(401)
        header = self._feed.folds.columns("header")
        self.set_header("Cache-Control", "no-store")
        self.write(
            {
                **self._about,
                "pid": os.getpid(),
                "run": header["name"],
                "path": str(self._feed.path) if self._feed.path else None,
                "status": header["status"] or ("live" if self._feed.live else "killed"),
                "cursor": self._feed.folds.cursor,
                "lost": self._feed.folds.lost,
            }
        )
