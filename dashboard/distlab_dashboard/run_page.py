"""A run on the board of one open page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from distlab.folds import BatchDetail, CaptureColumns, Folds
from distlab.page.board import Board
from distlab.page.facts import Facts, collect, loop_facts
from distlab.page.view import View
from distlab.runs.damage import as_damage
from distlab_dashboard.event_list import EventList
from distlab_dashboard.playback import Playback
from distlab_dashboard.served_run import ServedRun
from distlab_dashboard.timeline_zoom import TimelineZoom

_UNREADABLE: Final = "The run can't be read any further"
_DAMAGED: Final = "A part of the run can't be shown"
_MOST_TROUBLE: Final = 1_000
_NOTHING: Final = Folds()


class RunPage:
    """Shows a run: all of it, or the moment that the reader chose; or beside others."""

    def __init__(
        self,
        run: ServedRun,
        board: Board,
        names: Sequence[str],
        others: Sequence[ServedRun],
        *,
        may_control: bool = True,
    ) -> None:
        self.run = run
        self._may_control = may_control
        self._board = board
        self._names = names
        self._others = others
        self._playback = Playback(run.feed)
        self._events = EventList(run.feed)
        self._zoom: TimelineZoom | None = None

    @property
    def compares(self) -> bool:
        """True if it is compared with other runs."""
        return bool(self._others)

    def choose(self, view: View) -> None:
        """Follows the reader's choice of a moment."""
        self._playback.choose(view)

    def update(self, view: View, *, library: bool, runs: Facts | None = None) -> None:
        """Shows what changed since the last update."""
        board = self._board
        folds = self._playback.folds()
        with self._noting():
            board.update(folds, view)
        with self._noting():
            self._update_parts(view, folds)
        facts: dict[str, object] = {**self.facts(view, folds, library=library), **(runs or {})}
        if view.page == "events":
            with self._noting():
                moment = self._playback.facts()["time_at"]
                board.set_rows("events", self._events.update(view, moment))
                facts |= self._events.facts(view)
        board.set_facts(facts)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Has the page say what its block can't show: a damaged file may hold anything."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the page reports it
            self.run.fail_to_show(error)

    def _update_parts(self, view: View, folds: Folds) -> None:
        """Shows what changed beside the charts that all pages have."""
        board, feed = self._board, self.run.feed
        if view.page == "steps":
            if self._zoom is None:
                self._zoom = TimelineZoom(feed, board.timeline(), self.run.fail_to_show)
            self._zoom.update()
        if view.page == "compare" and self._others:
            paths = ", ".join(str(other.feed.path) for other in self._others)
            compared = f"compared with the one in {paths}"
            with as_damage(feed.path, compared, "the page of each may hold more of it"):
                runs = [feed.folds, *(other.feed.folds for other in self._others)]
                board.compare(runs, self._names)
        if view.page == "workers":
            board.set_workers(folds, feed.living)

    def facts(self, view: View, folds: Folds, *, library: bool) -> Facts:
        """Returns the page's texts, those of the page Events left out."""
        run, feed = self.run, self.run.feed
        shown = self._collected(view, folds)
        if run.damage:
            shown["trouble_title"] = _DAMAGED
            shown["trouble"] = run.damage[:_MOST_TROUBLE]
        if run.trouble:
            shown["trouble_title"] = _UNREADABLE
            shown["trouble"] = run.trouble[:_MOST_TROUBLE]
        session: Facts = {
            "page": view.page,
            "library": library,
            "run_key": self._names[0],
            "can_share": feed.path is not None,
            "compared": self.compares,
            "not_compared": not self.compares,
        }
        return {
            **shown,
            **loop_facts(
                run.loops,
                feed.folds.columns("loops"),
                live=feed.live,
                may_control=self._may_control,
            ),
            **self._playback.facts(),
            **(run.simulation_facts if self._may_simulate(view) else {}),
            **session,
        }

    def _may_simulate(self, view: View) -> bool:
        return view.page == "compile" and self._may_control and self.run.captures.possible

    def _collected(self, view: View, folds: Folds) -> Facts:
        """Returns the texts of the run; of one that is damaged, as many as can be made."""
        whole = self.run.feed.folds
        try:
            return self._facts_of(view, folds, whole)
        except Exception as error:  # noqa: BLE001 - the page reports it
            self.run.fail_to_show(error)
        try:
            return self._facts_of(view, _Undamaged(folds), _Undamaged(whole))
        except Exception:  # noqa: BLE001 - it is noted already
            return self._facts_of(view, _NOTHING, _NOTHING)

    def _facts_of(self, view: View, folds: Folds, whole: Folds) -> Facts:
        run, feed = self.run, self.run.feed
        return collect(
            folds,
            whole=whole,
            live=feed.live,
            living=feed.living,
            caught_up=feed.caught_up,
            read_share=feed.read_share,
            name=run.name,
            now_s=feed.now_s,
            batch=view.batch,
            dataset=view.dataset,
            capture=view.capture,
            advice=run.advice,
            capture_state=run.capture_state if self._may_control else "",
        )

    def close(self) -> None:
        """Frees what was read for this page alone."""
        self._playback.close()
        self._events.close()


class _Undamaged(Folds):
    """The folds of a damaged run: one that can't make its columns has those of an empty run."""

    def __init__(self, folds: Folds) -> None:
        super().__init__()
        self._own = folds
        self.lost = folds.lost
        self.evidence = folds.evidence

    def columns(self, name: Any) -> Any:
        """Returns the columns of one fold, or those of a run without events."""
        try:
            return self._own.columns(name)
        except Exception:  # noqa: BLE001 - the page says that a part can't be shown
            return super().columns(name)

    def batch(self, number: int | None = None, dataset: int | None = None) -> BatchDetail | None:
        """Returns one batch, None for one that can't be shown."""
        try:
            return self._own.batch(number, dataset)
        except Exception:  # noqa: BLE001 - the page says that a part can't be shown
            return None

    def capture(self, number: int | None = None) -> CaptureColumns:
        """Returns one capture, or that of a run without any."""
        try:
            return self._own.capture(number)
        except Exception:  # noqa: BLE001 - the page says that a part can't be shown
            return super().capture()
