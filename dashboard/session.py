"""One open page: a board of charts, kept up to date from the feed all pages share."""

from __future__ import annotations

from typing import Any, Final

import panel as pn
from bokeh.document import Document

from distlab_dashboard import facts
from distlab_dashboard.board import TILES_WIDTH, Board
from distlab_dashboard.feed import Feed
from distlab_dashboard.page import page_html, page_variables

PERIOD_MS: Final = 200
"""Milliseconds between two looks at the folds: five updates a second."""


class Session:
    """Shows a feed on a board.

    Only its own periodic callback and the page's own messages touch its models.
    """

    def __init__(self, feed: Feed) -> None:
        """Makes the charts and shows what the folds know."""
        self._feed = feed
        self._board = Board()
        self._captures_asked = 0
        self._look(everything=True)

    def template(self) -> pn.Template:
        """Returns the page with all charts in it."""
        template = pn.Template(page_html())
        for name, value in page_variables().items():
            template.add_variable(name, value)
        for name, root in self._board.roots().items():
            width = {"max_width": TILES_WIDTH} if name in {"batch", "newest"} else {}
            template.add_panel(name, pn.pane.Bokeh(root, sizing_mode="stretch_width", **width))
        return template

    def attach(self, document: Document) -> None:
        """Begins to update the page, from callbacks of its own document."""
        self._board.view.on_change("data", self._on_view)
        document.add_periodic_callback(self._look, PERIOD_MS)

    def _on_view(self, attribute: str, old: Any, new: Any) -> None:
        del attribute, old, new
        asked = int(self._board.view.data["capture"][0])
        if asked > self._captures_asked:
            self._captures_asked = asked
            self._feed.capture()
        self._look()

    def _look(self, *, everything: bool = False) -> None:
        """Shows what changed since the last look on the page that is open."""
        feed = self._feed
        self._board.look(feed.folds, everything=everything)
        said = facts.collect(
            feed.folds,
            live=feed.live,
            caught_up=feed.caught_up,
            name=feed.path.name if feed.path else "this process",
            batch=self._board.chosen_batch,
            advice=feed.advice,
        )
        self._board.say({**said, **facts.capture_button_facts(feed.capture_state)})


def show(feed: Feed) -> None:
    """Puts the page of a run into the current document.

    Args:
      feed: the run's feed, which all pages share.
    """
    session = Session(feed)
    document = pn.state.curdoc
    assert document is not None  # this is called to make a document
    with document.models.freeze():  # or Bokeh looks through all models once for each chart
        session.template().servable()
    document.title = "distlab"
    session.attach(document)
