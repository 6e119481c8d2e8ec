"""All open views of a notebook: who shares a feed, and who has to go."""

from __future__ import annotations

from typing import Protocol

from distlab.events import Source
from distlab.widgets._feed import Feed
from distlab.widgets._notebook import Execution, Notebook

_MOST_OPEN = 4


class Opened(Protocol):
    """A view as the desk sees it."""

    @property
    def execution(self) -> Execution:
        """The execution of the cell that made it."""

    @property
    def feed(self) -> Feed | None:
        """What it reads from, None when it reads no run."""

    def close(self) -> None:
        """Ends it; it leaves the desk."""


class Desk:
    """Keeps the views of one notebook's kernel, oldest first.

    Attributes:
      notebook: where they are shown.
      views: those that are open.
    """

    def __init__(self, notebook: Notebook) -> None:
        """Begins without any view."""
        self.notebook = notebook
        self.views: list[Opened] = []

    def feed(self, source: Source) -> Feed:
        """Returns what reads a source; views of the same source share it."""
        shared = (feed for feed in self._feeds() if feed.source is source)
        return next(shared, None) or Feed(source)

    def open(self, view: Opened) -> None:
        """Takes a view, and closes those that it replaces.

        A cell that is executed again replaces its outputs, and with them the
        views of its execution before. Nobody tells when a cell was deleted, so
        only the newest few views stay open.
        """
        now = view.execution
        for old in list(self.views):
            if now.cell and old.execution.cell == now.cell and old.execution != now:
                old.close()
        for old in self.views[: max(0, len(self.views) + 1 - _MOST_OPEN)]:
            old.close()
        self.views.append(view)
        self.notebook.call_after_cells(self._settle)

    def forget(self, view: Opened) -> None:
        """Lets go of a view that was closed."""
        if view in self.views:
            self.views.remove(view)
        if not self.views:
            self.notebook.call_after_cells(None)

    def _settle(self) -> None:
        for feed in self._feeds():
            feed.settle()

    def _feeds(self) -> list[Feed]:
        feeds = {id(view.feed): view.feed for view in self.views}
        return [feed for feed in feeds.values() if feed is not None]
