"""A run on the board of one open page."""

from __future__ import annotations

from typing import Final

from distlab.folds import Folds
from distlab.page.board import Board
from distlab.page.facts import RunsFacts, ServedFacts, SessionFacts, collect, loop_facts
from distlab.page.view import View
from distlab_dashboard.event_list import EventList
from distlab_dashboard.playback import Playback
from distlab_dashboard.served_run import ServedRun
from distlab_dashboard.timeline_zoom import TimelineZoom

_UNREADABLE: Final = "The run can't be read any further"
_MOST_TROUBLE: Final = 500


class RunPage:
    """Shows a run: all of it, or the moment that the reader chose; or beside another run.

    Attributes:
      run: The run.
    """

    def __init__(
        self, run: ServedRun, board: Board, names: tuple[str, str], other: ServedRun | None
    ) -> None:
        """Shows nothing yet.

        Args:
          run: The run.
          board: The page's charts.
          names: Names of the run and of the other one in their library; empty for the
            only run, and for no other one.
          other: The run to compare it with.
        """
        self.run = run
        self._board = board
        self._names = names
        self._other = other
        self._playback = Playback(run.feed)
        self._events = EventList(run.feed)
        self._zoom: TimelineZoom | None = None

    @property
    def compares(self) -> bool:
        """Whether another run is shown beside it."""
        return self._other is not None

    def choose(self, view: View) -> None:
        """Follows the reader's choice of a moment."""
        self._playback.choose(view)

    def update(self, view: View, *, library: bool, runs: RunsFacts | None = None) -> None:
        """Shows what changed since the last update.

        Args:
          view: The reader's choices.
          library: Whether there are other runs to choose from.
          runs: The facts of the page Runs, None for other pages.
        """
        board, feed = self._board, self.run.feed
        folds = self._playback.folds()
        board.update(folds, view)
        if view.page == "steps":
            if self._zoom is None:
                self._zoom = TimelineZoom(feed, board.timeline())
            self._zoom.update()
        if view.page == "compare" and self._other is not None:
            board.compare((feed.folds, self._other.feed.folds), self._names)
        if view.page == "workers":
            board.set_workers(folds, feed.living)
        facts: dict[str, object] = {**self.facts(view, folds, library=library), **(runs or {})}
        if view.page == "events":
            board.set_rows("events", self._events.update(view, self._playback.facts()["time_at"]))
            facts |= self._events.facts(view)
        board.set_facts(facts)

    def facts(self, view: View, folds: Folds, *, library: bool) -> ServedFacts:
        """Returns the page's texts, those of the page Events left out.

        Args:
          view: The reader's choices.
          folds: The run at the shown moment.
          library: Whether there are other runs to choose from.
        """
        run, feed = self.run, self.run.feed
        shown = collect(
            folds,
            whole=feed.folds,
            live=feed.live,
            living=feed.living,
            caught_up=feed.caught_up,
            read_share=feed.read_share,
            name=run.name,
            batch=view.batch,
            dataset=view.dataset,
            advice=run.advice,
            capture_state=run.capture_state,
        )
        if run.trouble:
            shown["trouble_title"] = _UNREADABLE
            shown["trouble"] = run.trouble[:_MOST_TROUBLE]
        key, other = self._names
        session: SessionFacts = {
            "page": view.page,
            "library": library,
            "run_key": key,
            "can_share": feed.path is not None,
            "compared": self._other is not None,
            "not_compared": self._other is None,
            "other": other,
        }
        return {
            **shown,
            **loop_facts(run.loops, feed.folds.columns("loops"), live=feed.live),
            **self._playback.facts(),
            **session,
        }

    def close(self) -> None:
        """Frees what was read for this page alone."""
        self._playback.close()
        self._events.close()
