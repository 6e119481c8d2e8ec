"""A view of a run in a notebook: opened, kept up to date, and left as a picture."""

from __future__ import annotations

import sys
import uuid
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final

from distlab.errors import ArgumentTypeError, MissingExtraError, RecordError
from distlab.events import Advice, Source, sink
from distlab.recording import RingRecorder
from distlab.text.counts import is_count
from distlab.text.shown import shown
from distlab.widgets._notebook import Execution, find_notebook

if TYPE_CHECKING:
    from distlab.folds import BatchDetail, Folds
    from distlab.widgets._open_views import OpenViews
    from distlab.widgets._view_widget import ViewWidget

_REMEDY: Final = 'another view or run.export("events.jsonl") may hold more of it'
_NEEDS: Final = ("bokeh", "ipywidgets", "anywidget")
_open_views: OpenViews | None = None


class View:
    """Charts of a run below a cell.

    A view stays live until it is closed, its cell is executed again, or four newer views
    were opened. A picture of its last state remains in the notebook. In a script or a
    terminal it only prints a summary.

    Attributes:
      panes: Names of its charts, from top to bottom.
      feed: Its reader.
      execution: The execution of the cell that made it.
    """

    panes: tuple[str, ...] = ()
    has_buttons: ClassVar[bool] = False
    """True if it may pause and stop the `controlled` loops of this process."""
    has_advice: ClassVar[bool] = False
    """True if its notes have the newest advice."""

    def __init__(self, source: Source | None = None) -> None:
        """Opens the view; the classes in `distlab.widgets` differ by their charts.

        Args:
          source: The run to show: by default that of this process, from memory; or an
            opened one, such as `distlab.Run.open("runs/first")`.

        Raises:
          MissingExtraError: The packages for notebooks are not installed.
          RecordError: Nothing records this process, so there is nothing to show.
          ArgumentTypeError: `source` is not a run.
          NotARunError: The run is damaged in a way that the view can't pass over.
        """
        self._open(source, None)

    def _open(self, source: Source | None, batch: int | None) -> None:
        check_packages()
        from distlab.page.feed import Feed
        from distlab.runs.damage import as_damage

        watched = _ring() if source is None else _checked(source)
        if batch is not None and not is_count(batch):
            raise ArgumentTypeError(
                "batch must be a batch's number, from 0, or None for the newest, got "
                f"{shown(batch)}."
            )
        self._batch = batch
        self._widget: ViewWidget | None = None
        self._advice: list[Advice] = []
        self._views = views = find_views()
        self.execution = views.notebook.execution if views else Execution("", "")
        self.feed = views.feed(watched) if views else Feed(watched)
        if views:
            from distlab.widgets._view_widget import ViewWidget

            buttons = self.has_buttons and source is None
            self._host = f"distlab-{uuid.uuid4().hex}"
            self._widget = ViewWidget(self._host, self.panes, batch=batch, buttons=buttons)
        try:
            with as_damage(self.feed.path, "shown", _REMEDY):
                self.feed.pull()
                self._renew_advice(at_once=True)
                self.refresh(self.feed.folds)
                if views:
                    self.tick()
                    self._publish(views, update=False)
        except BaseException:
            if self._widget is not None:
                self._widget.close()
            raise
        if views:
            views.add(self)
            self.feed.add(self)
        else:
            sys.stdout.write(f"{self}\n")

    def _shown_batch(self, folds: Folds) -> BatchDetail | None:
        return folds.newest_of_main() if self._batch is None else folds.batch(self._batch)

    @property
    def live(self) -> bool:
        """True while it follows the run."""
        return self._widget is not None

    def refresh(self, folds: Folds) -> None:
        """Shows new events; its feed calls it."""
        from distlab.widgets._summary import summarize

        self._summary = summarize(
            folds,
            self._shown_batch(folds),
            self.panes,
            self._batch,
            advice=self._advice,
            live=self.feed.live,
            now_s=self.feed.now_s,
        )
        self._stale = True
        widget = self._widget
        if widget is not None:
            widget.show(self._summary, folds)

    def tick(self) -> None:
        """Shows loops to control, that no step comes, and new advice; its feed calls it."""
        from distlab.widgets._summary import status_text

        feed, widget = self.feed, self._widget
        if widget is not None:
            widget.show_loops()
            status = status_text(feed.folds, live=feed.live, now_s=feed.now_s)
            if self._renew_advice() or status != self._summary.status:
                self.refresh(feed.folds)

    def _renew_advice(self, *, at_once: bool = False) -> bool:
        before = self._advice
        if self.has_advice:
            self._advice = self.feed.advice.renewed(at_once=at_once)
        return self._advice is not before

    def settle(self, folds: Folds) -> None:
        """Updates the picture in the notebook; its feed calls it."""
        if self._renew_advice(at_once=True):
            self.refresh(folds)
        if self._stale and self._views:
            self._publish(self._views, update=True)

    def fail(self, error: Exception) -> None:
        """Shows why the run can be read no further, and ends; its feed calls it."""
        from distlab.runs.damage import damage

        found = damage(error, self.feed.path, "shown any further", _REMEDY)
        note = f"This view stopped: {type(found).__name__}: {found}"
        self._summary = replace(self._summary, notes=[*self._summary.notes, note])
        self._stale = True
        self.close()

    def close(self) -> None:
        """Ends the live view; the picture stays. A second call has no effect."""
        widget, self._widget = self._widget, None
        if widget is None or self._views is None:
            return
        self._views.remove(self)
        self.feed.remove(self)
        self.settle(self.feed.folds)
        widget.close()

    def _publish(self, views: OpenViews, *, update: bool) -> None:
        from distlab.widgets._picture import picture

        folds = self.feed.folds
        drawn = picture(folds, self._shown_batch(folds), self._summary)
        # The live view draws itself into this element, over the picture.
        html = f'<div class="distlab-watch {self._host}"><div>{drawn}</div></div>'
        views.notebook.publish(html, str(self), self._host, update=update)
        self._stale = False

    def _ipython_display_(self) -> None:
        """Shows it once more, unless it was made by the cell that ends with it."""
        if self._views and self._views.notebook.execution != self.execution:
            self._publish(self._views, update=False)

    def __str__(self) -> str:
        return "\n".join(self._summary.lines())

    def __repr__(self) -> str:
        state = "live" if self.live else "closed"
        return f"<{type(self).__name__} of {self._summary.name!r}, {state}>"


def in_notebook() -> bool:
    """Returns whether a front end can show views; in a script they are printed."""
    return find_notebook() is not None


def check_packages() -> None:
    """Checks that the packages that draw are installed."""
    missing = [package for package in _NEEDS if find_spec(package) is None]
    if missing:
        raise MissingExtraError(
            f"Views draw with {', '.join(_NEEDS)}, and {', '.join(missing)} can't be found. "
            'Install them with: pip install "distlab[notebook]"'
        )


def find_views() -> OpenViews | None:
    """Returns the open views of this notebook; None in a script or a terminal."""
    global _open_views
    notebook = find_notebook()
    if notebook is None:
        return None
    if _open_views is None:
        from distlab.widgets._open_views import OpenViews

        _open_views = OpenViews(notebook)
    return _open_views


def _checked(source: Source) -> Source:
    if not hasattr(source, "since"):
        raise ArgumentTypeError(
            f"A view shows a run, got a {type(source).__name__}: {shown(source)}. Open its folder "
            "with distlab.Run.open(folder); or pass nothing for this process."
        )
    return source


def _ring() -> Source:
    recorder = sink.recorder()
    if not isinstance(recorder, RingRecorder):
        raise RecordError(
            f"A view shows what the recorder keeps, but a {type(recorder).__name__} keeps nothing. "
            "Start Python without DISTLAB_RECORD=off, or pass a recorded run: "
            'distlab.watch(distlab.Run.open("runs/first")).'
        )
    return recorder.ring
