"""One open page: a board of charts, kept up to date from the feed all pages share."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import cache, partial
from typing import Any, Final

import panel as pn
from bokeh.core.templates import get_env
from bokeh.document import Document
from bokeh.protocol.message import Message

from distlab.control.loops import LoopControl
from distlab.errors import NotARunError
from distlab.folds import Folds
from distlab.page import facts
from distlab.page.board import Board
from distlab.page.runs_table import run_rows
from distlab.page.template import page_html, page_variables
from distlab.page.view import View
from distlab_dashboard.broadcast import PAGES, Channel, broadcast_of
from distlab_dashboard.closer_look import CloserLook
from distlab_dashboard.departure import Departure
from distlab_dashboard.empty_defaults import EmptyDefaults
from distlab_dashboard.event_list import EventList
from distlab_dashboard.feed import Feed
from distlab_dashboard.library import Library
from distlab_dashboard.moment import Moment

PERIOD_MS: Final = 125
"""Milliseconds between two looks at the folds: eight updates a second."""

_ORDERS: Final = {
    "pause": LoopControl.pause,
    "step": LoopControl.step,
    "resume": LoopControl.resume,
    "stop": LoopControl.stop,
}


class Session:
    """Shows a run on a board, or the runs to choose from.

    Only its own periodic callback and the page's own messages touch its models.
    """

    def __init__(self, library: Library, run: str | None = None, other: str | None = None) -> None:
        """Makes the charts and shows what the folds know.

        Args:
          library: where runs come from.
          run: which one to show; None for the only one, or for none yet.
          other: which one to compare it with.

        Raises:
          NotARunError: there is no such run.
        """
        self._library = library
        self._run = run
        self._other_name = other
        self._feed: Feed | None = None
        self._other: Feed | None = None
        if library.single or run is not None:
            self._feed = library.hold(run or "")
        if self._feed is not None and other is not None and not library.single:
            self._other = library.hold(other)
        self._moment = Moment(self._feed) if self._feed else None
        self._events = EventList(self._feed) if self._feed else None
        self._nothing = Folds()
        self._board = Board()
        self._closer: CloserLook | None = None
        self._view = View()
        self._context: Any = None
        self._followed: Channel | None = None
        self._heard = 0
        self._defaults: EmptyDefaults | None = None
        self._look()

    def fill(self, document: Document) -> None:
        """Puts the page, with a place for each chart, into a document."""
        document.template = _template()
        document.template_variables.update(page_variables())
        for root in self._board.roots().values():
            document.add_root(root)

    def attach(self, document: Document) -> None:
        """Begins to update the page, from callbacks of its own document."""
        self._board.view.on_change("data", self._on_view)
        document.add_periodic_callback(self._look_again, PERIOD_MS)
        self._defaults = EmptyDefaults(document)
        self._defaults.drop()
        self._context = document.session_context
        if document.session_context is not None:
            Departure(document.session_context, document)
        document.on_session_destroyed(self._close)

    def _close(self, context: Any) -> None:
        """Lets go of what was read for this page alone."""
        del context
        if self._moment is not None:
            self._moment.close()
        if self._events is not None:
            self._events.close()
        if self._feed is not None:
            broadcast_of(self._feed).channel(self, None)
        for feed in (self._feed, self._other):
            if feed is not None:
                self._library.release(feed)
        self._feed = self._other = self._moment = self._events = self._closer = None
        self._followed = self._context = self._defaults = None

    def _on_view(self, attribute: str, old: Any, new: Any) -> None:
        del attribute, old, new
        before, self._view = self._view, self._board.chosen()
        feed = self._feed
        if feed is not None and self._view.captures > before.captures:
            feed.capture()
        if feed is not None and self._view.orders > before.orders:
            self._give_order(feed, self._view)
        if self._moment is not None:
            self._moment.choose(self._view)
        self._look_by_itself()

    def _give_order(self, feed: Feed, view: View) -> None:
        act = _ORDERS.get(view.order)
        for loop in feed.loops or ():
            if act is not None and loop.number == view.loop:
                act(loop)

    def _look_again(self) -> Awaitable[None] | None:
        """Sends what changed: what all get that follow this page, or what this one alone shows.

        Returns:
          What has to be waited for, if anything. It is no coroutine itself, because
          nothing knows its document in there.
        """
        if self._defaults is not None:
            self._defaults.look()
        channel, feed = self._channel(), self._feed
        if channel is None or feed is None:
            self._look_by_itself()
            return None
        channel.look(feed.folds, partial(self._facts, feed, feed.folds))
        same = self._followed is channel
        messages = channel.since(self._heard) if same else None
        if messages is None:  # this page was not there for them, or too slow
            self._look_by_itself()
            self._followed = channel
        self._heard = channel.number
        return self._send(messages) if messages else None

    def _channel(self) -> Channel | None:
        """Returns where to hear what this page shows, None when it shows something of its own."""
        view, feed = self._view, self._feed
        if feed is None:
            return None
        pressed = {name: getattr(view, name) for name in ("captures", "orders", "loop", "order")}
        follows = self._other is None and view == View(page=view.page, **pressed)
        page = view.page if follows and view.page in PAGES else None
        return broadcast_of(feed).channel(self, page)

    def _look_by_itself(self) -> None:
        """Looks, and sends all that changed as one message: the page draws it once."""
        if self._followed is not None:
            self._followed = None
            self._board.forget()
        with pn.io.unlocked(policy="combine"):
            self._look()

    async def _send(self, messages: Sequence[Message[Any]]) -> None:
        """Sends messages that are not about this session's own board, which stays as it was."""
        context = self._context
        session = context.session if context is not None else None
        for connection in tuple(session._subscribed_connections) if session is not None else ():
            for message in messages:
                await connection._socket.send_message(message)

    def _look(self) -> None:
        """Shows what changed since the last look on the page that is open."""
        board, view = self._board, self._view
        folds = self._moment.folds() if self._moment else self._nothing
        board.look(folds, view)
        if self._feed is not None and view.page == "steps":
            if self._closer is None:
                self._closer = CloserLook(self._feed, board.chart("steps"))
            self._closer.look()
        if view.page == "compare" and self._feed is not None and self._other is not None:
            names = self._run or "", self._other_name or ""
            board.compare((self._feed.folds, self._other.folds), names)
        if view.page == "runs" or self._feed is None:
            board.show_rows("runs", run_rows(self._library.summaries()))
        if self._feed is not None:
            board.say(self._facts(self._feed, folds))
        else:
            board.say({"index": True, "library": True, "run": "runs", "status": "index"})

    def _facts(self, feed: Feed, folds: Folds) -> facts.Facts:
        moment, events, view = self._moment, self._events, self._view
        assert moment is not None
        assert events is not None
        said = facts.collect(
            folds,
            whole=feed.folds,
            live=feed.live,
            caught_up=feed.caught_up,
            name=feed.path.name if feed.path else "this process",
            batch=view.batch,
            advice=feed.advice,
        )
        said["page"] = view.page
        said["reading_trouble"] = feed.trouble[:500]
        said["read_share"] = None if feed.caught_up else feed.read_share
        said |= facts.capture_button_facts(feed.capture_state)
        said |= facts.loop_facts(feed.loops, feed.folds.columns("loops"), live=feed.live)
        bar = moment.facts()
        if view.page == "events":
            self._board.show_rows("events", events.look(view, bar["time_at"]))
            said |= events.facts(view)
        compared = {"other": self._other_name or "", "compared": self._other is not None}
        compared["not_compared"] = self._other is None
        shared = {"can_share": feed.path is not None, "run_key": self._run or ""}
        return {**said, **bar, **compared, **shared, "library": not self._library.single}


@cache
def _template() -> Any:
    """Returns the page's template, read once."""
    return get_env().from_string(page_html())


def show(library: Library) -> None:
    """Puts a page into the current document.

    Which run it shows, and with which other one it is compared, the address says:
    `?run=NAME&compare=NAME`.

    Args:
      library: where runs come from; all pages share it.
    """
    document = pn.state.curdoc
    assert document is not None  # this is called to make a document
    document.title = "distlab"
    try:
        session = Session(library, _argument(document, "run"), _argument(document, "compare"))
    except NotARunError as error:
        pn.pane.Str(str(error), styles={"font-size": "16px", "padding": "24px"}).servable()
        return
    with document.models.freeze():  # or Bokeh looks through all models once for each chart
        session.fill(document)
    session.attach(document)


def _argument(document: Document, name: str) -> str | None:
    """Returns a value that the page's address gives, None when it gives none."""
    context = document.session_context
    given = context.request.arguments.get(name) if context and context.request else None
    return given[0].decode("utf-8", "replace") if given else None
