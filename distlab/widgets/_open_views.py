"""The open views of a notebook, which share feeds and replace each other."""

from __future__ import annotations

from typing import Final, Protocol

from distlab.events import Source
from distlab.page.feed import Feed
from distlab.widgets._notebook import Execution, Notebook

_MOST_OPEN: Final = 4


class Open(Protocol):
    """A view that is open."""

    @property
    def execution(self) -> Execution:
        """The execution of the cell that made it."""

    @property
    def feed(self) -> Feed | None:
        """Its reader, None when it shows no run."""

    def close(self) -> None:
        """Ends it, and removes it from the open views."""


class OpenViews:
    """The open views of one notebook's kernel."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self.views: list[Open] = []

    def feed(self, source: Source) -> Feed:
        """Returns the feed of a source, which its views share."""
        shared = (feed for feed in self._feeds() if feed.source is source)
        return next(shared, None) or Feed(source)

    def add(self, view: Open) -> None:
        """Adds a view, and closes those that it replaces.

        A cell that is executed again replaces its outputs, and with them the views of
        its previous execution. Nothing reports that a cell was deleted, so only the
        newest few views stay open.
        """
        now = view.execution
        for old in list(self.views):
            if now.cell and old.execution.cell == now.cell and old.execution != now:
                old.close()
        for old in self.views[: max(0, len(self.views) + 1 - _MOST_OPEN)]:
            old.close()
        self.views.append(view)
        self.notebook.call_after_cells(self._settle)

    def remove(self, view: Open) -> None:
        """Removes a closed view."""
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
