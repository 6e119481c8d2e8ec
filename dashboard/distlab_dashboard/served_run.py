"""A run that pages show: one feed for all of them, with its newest advice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from distlab.errors import DistlabError, NotARunError
from distlab.events import Advice, Source
from distlab.folds import Folds
from distlab.page.facts import Facts
from distlab.page.feed import Feed
from distlab.page.loop_buttons import LoopRow, loop_rows
from distlab.runs.damage import EXPORT_HOLDS_MORE, damage
from distlab.simulation.replicas import steps
from distlab.simulation.requests import Requests
from distlab_dashboard.shared_pages import SharedPages

_log: Final = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 0.025


class CaptureRequests:
    """Requests captures of a run that this process trains, one at a time."""

    def __init__(self, request: Callable[[], Future[object]] | None) -> None:
        self._request = request
        self._running: Future[object] | None = None
        self._refused = ""

    @property
    def possible(self) -> bool:
        """True if this process trains the run."""
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


class ServedRun:
    """A run with everything that its pages share."""

    def __init__(
        self,
        source: Source,
        request_capture: Callable[[], Future[object]] | None = None,
        *,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._close = close
        self.feed = Feed(source, _PERIOD_SECONDS)
        self.captures = CaptureRequests(request_capture)
        self.shared = SharedPages()
        self.simulations = Requests()
        self.advice: list[Advice] = []
        self.trouble = ""  # why the run can be read no further
        self.damage = ""  # why a part of it can't be shown

    @property
    def name(self) -> str:
        """Name of a run that has not reported one."""
        return self.feed.path.name if self.feed.path else "this process"

    @property
    def loops(self) -> list[LoopRow] | None:
        """The running loops of this process; None where another process trains."""
        return loop_rows() if self.captures.possible and self.feed.live else None

    @property
    def capture_state(self) -> str:
        """State of the capture button; empty where no capture can be taken."""
        return self.captures.state if self.captures.possible and self.feed.live else ""

    @property
    def simulation_facts(self) -> Facts:
        """The steps of this process that can be simulated, and the newest simulation of one."""
        wanted, names = self.simulations, list(steps())
        headings, rows = wanted.found.table() if wanted.found else ([], [])
        return {
            "can_simulate": bool(names),
            "cannot_simulate": not names,
            "simulated_steps": names,
            "simulating": wanted.running,
            "simulation_state": wanted.state,
            "simulated_headings": headings,
            "simulated_rows": rows,
            "simulated_notes": wanted.found.notes() if wanted.found else [],
        }

    def start(self) -> None:
        """Begins to read."""
        self.feed.add(self)

    def stop(self) -> None:
        """Stops reading, within a few seconds, and closes what was opened for it."""
        self.feed.remove(self, wait=True)
        if self._close is not None:
            self._close()

    def refresh(self, folds: Folds) -> None:
        """Does nothing: sessions look at the folds by themselves."""

    def tick(self) -> None:
        """Renews the advice where it is due."""
        self.advice = self.feed.advice.renewed()

    def settle(self, folds: Folds) -> None:
        """Does nothing: a page leaves no picture."""

    def fail(self, error: Exception) -> None:
        """Notes the error for all pages, which would look live otherwise."""
        self.trouble = self._noted(error, "read any further")

    def fail_to_show(self, error: Exception) -> None:
        """Notes what a page can't show; the first such error stands for all."""
        self.damage = self.damage or self._noted(error, "shown as a whole")

    def _noted(self, error: Exception, what: str) -> str:
        """Returns an error as text, and logs it: with its traceback unless a file is damaged."""
        found = damage(error, self.feed.path, what, EXPORT_HOLDS_MORE)
        if isinstance(found, NotARunError):
            _log.error("%s", found)
            return str(found)
        _log.error("The run can't be %s.", what, exc_info=error)
        return f"{type(error).__name__}: {error}"
