"""A view of a run in a notebook: opened, kept up to date, and left as a picture."""

from __future__ import annotations

import sys
import uuid
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from distlab.errors import ArgumentTypeError, MissingExtraError, RecordError
from distlab.events import Source, sink
from distlab.recording import RingRecorder
from distlab.text.counts import is_count
from distlab.widgets._notebook import Execution, find_notebook

if TYPE_CHECKING:
    from distlab.folds import Folds
    from distlab.widgets._desk import Desk
    from distlab.widgets._live import LiveView

_NEEDS = ("bokeh", "ipywidgets", "anywidget")
_desk: Desk | None = None


class View:
    """Charts of a run below a cell.

    It stays live until it is closed, its cell is executed again, or four newer
    views were opened. A picture of what it showed last remains in the notebook.
    In a script or a terminal it prints a summary, and that is all.

    Attributes:
      panes: names of its charts, from top to bottom.
      feed: what it reads from.
      execution: the execution of the cell that made it.
    """

    def __init__(
        self,
        panes: tuple[str, ...],
        source: Source | None = None,
        *,
        batch: int | None = None,
        buttons: bool = False,
    ) -> None:
        """Opens a view; the names in `distlab.widgets` do this with their charts.

        Args:
          panes: names of its charts, from top to bottom.
          source: the run to show: by default that of this process, from memory;
            also an opened one, such as `distlab.Run.open("runs/first")`.
          batch: number of the batch to show, counted from 0; None for the newest.
          buttons: whether it may pause and stop the `controlled` loops of this
            process.

        Raises:
          MissingExtraError: the packages for notebooks are not installed.
          RecordError: nothing records this process, so there is nothing to show.
          ArgumentTypeError: `source` is no run, or `batch` no number.
        """
        check_packages()
        shown = _ring() if source is None else _checked(source)
        if batch is not None and not is_count(batch):
            raise ArgumentTypeError(
                f"batch must be a batch's number, from 0, or None for the newest, got {batch!r}."
            )
        self.panes = panes
        self._batch = batch
        self._view: LiveView | None = None
        self._desk = find_desk()
        self.execution = self._desk.notebook.execution if self._desk else Execution("", "")
        self._open(shown, buttons=buttons and source is None)

    def _open(self, source: Source, *, buttons: bool) -> None:
        from distlab.widgets._feed import Feed

        self.feed = self._desk.feed(source) if self._desk else Feed(source)
        if self._desk:
            from distlab.widgets._live import LiveView

            self._host = f"distlab-{uuid.uuid4().hex}"
            self._view = LiveView(self._host, self.panes, batch=self._batch, buttons=buttons)
        self.feed.pull()
        self.refresh(self.feed.folds)
        if self._desk:
            self.tick()
            self._publish(self._desk, update=False)
            self._desk.open(self)
            self.feed.add(self)
        else:
            sys.stdout.write(f"{self}\n")

    @property
    def live(self) -> bool:
        """Whether it still follows the run."""
        return self._view is not None

    def refresh(self, folds: Folds) -> None:
        """Shows what changed; its feed calls it."""
        from distlab.widgets._facts import facts

        self._said = facts(folds, folds.batch(self._batch), self.panes)
        self._stale = True
        view = self._view
        if view is not None:
            view.show(self._said, folds)

    def tick(self) -> None:
        """Shows what is no event: which loops can be controlled; its feed calls it."""
        view = self._view
        if view is not None:
            view.show_loops()

    def settle(self, folds: Folds) -> None:  # noqa: ARG002 - it drew them already
        """Brings the picture in the notebook up to date; its feed calls it."""
        if self._stale and self._desk:
            self._publish(self._desk, update=True)

    def fail(self, error: Exception) -> None:
        """Says that reading the run failed, and ends; its feed calls it."""
        note = f"This view stopped: {type(error).__name__}: {error}"
        self._said = replace(self._said, notes=[*self._said.notes, note])
        self._stale = True
        self.close()

    def close(self) -> None:
        """Ends the live view; the picture stays. Closing twice does nothing."""
        view, self._view = self._view, None
        if view is None or self._desk is None:
            return
        self._desk.forget(self)
        self.feed.remove(self)
        self.settle(self.feed.folds)
        view.close()

    def _publish(self, desk: Desk, *, update: bool) -> None:
        from distlab.widgets._picture import picture

        folds = self.feed.folds
        drawn = picture(folds, folds.batch(self._batch), self._said)
        # The live view draws itself into this element, over the picture.
        html = f'<div class="distlab-watch {self._host}"><div>{drawn}</div></div>'
        desk.notebook.publish(html, str(self), self._host, update=update)
        self._stale = False

    def _ipython_display_(self) -> None:
        """Shows it once more, unless it was made by the cell that ends with it."""
        if self._desk and self._desk.notebook.execution != self.execution:
            self._publish(self._desk, update=False)

    def __str__(self) -> str:
        return "\n".join(self._said.lines())

    def __repr__(self) -> str:
        state = "live" if self.live else "closed"
        return f"<{type(self).__name__} of {self._said.name!r}, {state}>"


def in_notebook() -> bool:
    """Says whether a front end can show views; in a script they are printed."""
    return find_notebook() is not None


def check_packages() -> None:
    """Checks that what draws is installed.

    Raises:
      MissingExtraError: it is not.
    """
    missing = [package for package in _NEEDS if find_spec(package) is None]
    if missing:
        raise MissingExtraError(
            f"Views draw with {', '.join(_NEEDS)}, and {', '.join(missing)} can't be found. "
            'Install them with: pip install "distlab[notebook]"'
        )


def _checked(source: Source) -> Source:
    if not hasattr(source, "since"):
        raise ArgumentTypeError(
            f"A view shows a run, got a {type(source).__name__}: {source!r:.80}. Open its folder "
            "with distlab.Run.open(folder); or give nothing for this process."
        )
    return source


def _ring() -> Source:
    recorder = sink.recorder()
    if not isinstance(recorder, RingRecorder):
        raise RecordError(
            f"A view shows what the recorder keeps, but a {type(recorder).__name__} keeps nothing. "
            "Start Python without DISTLAB_RECORD=off, or give it a recorded run: "
            'distlab.watch(distlab.Run.open("runs/first")).'
        )
    return recorder.ring


def find_desk() -> Desk | None:
    """Returns the views of this notebook; None in a script or a terminal."""
    global _desk
    notebook = find_notebook()
    if notebook is None:
        return None
    if _desk is None:
        from distlab.widgets._desk import Desk

        _desk = Desk(notebook)
    return _desk
