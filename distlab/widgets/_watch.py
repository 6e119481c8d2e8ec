"""`distlab.watch()`: the run of this process, live in a notebook."""

from __future__ import annotations

import sys
import uuid
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from distlab import _seam
from distlab._counts import is_count
from distlab.errors import ArgumentTypeError, MissingExtraError, RecordError
from distlab.events import Source
from distlab.recording import RingRecorder
from distlab.widgets._notebook import find_notebook

if TYPE_CHECKING:
    from distlab.folds import Folds
    from distlab.widgets._desk import Desk
    from distlab.widgets._feed import Feed

_NEEDS = ("bokeh", "ipywidgets", "anywidget")
_desk: Desk | None = None


class Watch:
    """A view of a run in a notebook; made by `watch`.

    It stays live until it is closed, its cell is executed again, or four newer
    views were opened. A picture of what it showed last remains in the notebook.

    Attributes:
      feed: what it reads from.
      execution: the execution of the cell that made it.
    """

    def __init__(self, desk: Desk, feed: Feed, batch: int | None) -> None:
        """Shows what is known so far; `watch` opens it.

        Args:
          desk: the notebook's views.
          feed: what it reads from.
          batch: number of the batch to show, None for the newest.
        """
        from distlab.widgets._live import LiveView

        self.feed = feed
        self.execution = desk.notebook.execution
        self._desk = desk
        self._batch = batch
        self._host = f"distlab-{uuid.uuid4().hex}"
        self._view: LiveView | None = LiveView(self._host, batch)
        feed.pull()
        self.refresh(feed.folds)
        self._publish(update=False)

    @property
    def live(self) -> bool:
        """Whether it still follows the run."""
        return self._view is not None

    def refresh(self, folds: Folds) -> None:
        """Shows what changed; its feed calls it."""
        from distlab.widgets._facts import facts

        self._said = facts(folds, folds.batch(self._batch))
        self._stale = True
        view = self._view
        if view is not None:
            view.show(self._said, folds)

    def settle(self, folds: Folds) -> None:  # noqa: ARG002 - it drew them already
        """Brings the picture in the notebook up to date; its feed calls it."""
        if self._stale:
            self._publish(update=True)

    def fail(self, error: Exception) -> None:
        """Says that reading the run failed, and ends; its feed calls it."""
        note = f"This view stopped: {type(error).__name__}: {error}"
        self._said = replace(self._said, notes=[*self._said.notes, note])
        self._stale = True
        self.close()

    def close(self) -> None:
        """Ends the live view; the picture stays. Closing twice does nothing."""
        view, self._view = self._view, None
        if view is None:
            return
        self._desk.forget(self)
        self.settle(self.feed.folds)
        view.close()

    def _publish(self, *, update: bool) -> None:
        from distlab.widgets._picture import picture

        folds = self.feed.folds
        drawn = picture(folds, folds.batch(self._batch), self._said)
        # The live view draws itself into this element, over the picture.
        html = f'<div class="distlab-watch {self._host}"><div>{drawn}</div></div>'
        self._desk.notebook.publish(html, str(self), self._host, update=update)
        self._stale = False

    def _ipython_display_(self) -> None:
        """Shows it once more, unless it was made by the cell that ends with it."""
        if self._desk.notebook.execution != self.execution:
            self._publish(update=False)

    def __str__(self) -> str:
        return "\n".join(self._said.lines())

    def __repr__(self) -> str:
        return f"<distlab.watch of {self._said.name!r}, {'live' if self.live else 'closed'}>"


def watch(source: Source | None = None, *, batch: int | None = None) -> Watch | None:
    """Shows a run in the notebook: batches, devices and reductions.

    Call it before the training loop, at the beginning of its cell, or when it
    is done. The view is live while cells run, and a picture of what it shows is
    saved with the notebook. In a script or a terminal it prints a summary.

    Args:
      source: the run to show: by default that of this process, from memory;
        also an opened one, such as `distlab.Run.open("runs/first")`.
      batch: number of the batch to show, counted from 0; None for the newest.

    Returns:
      The view, to `close` it; None where there is no notebook.

    Raises:
      MissingExtraError: the packages for notebooks are not installed.
      RecordError: nothing records this process, so there is nothing to show.
      ArgumentTypeError: `source` is no run, or `batch` no number.
    """
    missing = [package for package in _NEEDS if find_spec(package) is None]
    if missing:
        raise MissingExtraError(
            f"watch draws with {', '.join(_NEEDS)}, and {', '.join(missing)} can't be found. "
            'Install them with: pip install "distlab[notebook]"'
        )
    source = _ring() if source is None else source
    if not hasattr(source, "since"):
        raise ArgumentTypeError(
            f"watch needs a run, got a {type(source).__name__}: {source!r:.80}. Open its folder: "
            "watch(distlab.Run.open(folder)); or give nothing for this process."
        )
    if batch is not None and not is_count(batch):
        raise ArgumentTypeError(
            f"batch must be a batch's number, from 0, or None for the newest, got {batch!r}."
        )
    notebook = find_notebook()
    if notebook is None:
        _print_summary(source, batch)
        return None
    from distlab.widgets._desk import Desk

    global _desk
    if _desk is None:
        _desk = Desk(notebook)
    view = Watch(_desk, _desk.feed(source), batch)
    _desk.open(view)
    return view


def _ring() -> Source:
    recorder = _seam.recorder()
    if not isinstance(recorder, RingRecorder):
        raise RecordError(
            f"watch shows what the recorder keeps, but a {type(recorder).__name__} keeps nothing. "
            "Start Python without DISTLAB_RECORD=off, or give watch a recorded run: "
            'distlab.watch(distlab.Run.open("runs/first")).'
        )
    return recorder.ring


def _print_summary(source: Source, batch: int | None) -> None:
    from distlab.widgets._facts import facts
    from distlab.widgets._feed import Feed

    feed = Feed(source)
    feed.pull()
    said = facts(feed.folds, feed.folds.batch(batch))
    sys.stdout.write("\n".join(said.lines()) + "\n")
