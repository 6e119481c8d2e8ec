"""Captures that pages request from the training process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from distlab.errors import DistlabError


class CaptureRequests:
    """Requests captures of a run that this process trains, one at a time."""

    def __init__(self, request: Callable[[], Future[object]] | None) -> None:
        self._request = request
        self._running: Future[object] | None = None
        self._refused = ""

    @property
    def possible(self) -> bool:
        """Whether this process trains the run."""
        return self._request is not None

    @property
    def state(self) -> str:
        """`"ready"`, `"running"`, or why the last capture failed."""
        running = self._running
        if running is not None and not running.done():
            return "running"
        failed = running.exception() if running is not None else None
        return self._refused or (str(failed) if failed else "ready")

    def start(self) -> None:
        """Requests a capture of the next steps, unless one is running."""
        if self._request is None or self.state == "running":
            return
        try:
            self._running, self._refused = self._request(), ""
        except DistlabError as error:
            self._refused = str(error)
