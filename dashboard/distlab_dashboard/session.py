"""One open page of the dashboard and its connection to the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final, cast

import panel as pn
from bokeh.application.application import SessionContext
from bokeh.core.templates import get_env
from bokeh.document import Document
from bokeh.server.contexts import BokehSessionContext

from distlab.charts.bokeh_internals import send_to_pages
from distlab.errors import NotARunError
from distlab.folds import Folds
from distlab.page.board import Board
from distlab.page.facts import INDEX, Facts, runs_facts
from distlab.page.loop_buttons import press
from distlab.page.runs_table import run_rows
from distlab.page.template import page_html, page_variables
from distlab.page.view import PRESSED, View
from distlab.runs.damage import EXPORT_HOLDS_MORE, as_damage
from distlab_dashboard.access.arguments import ROLE, values
from distlab_dashboard.access.notices import show_notice
from distlab_dashboard.library import Library
from distlab_dashboard.run_page import RunPage
from distlab_dashboard.served_run import ServedRun
from distlab_dashboard.shared_pages import PAGES, SharedPage

_template: Final = cache(lambda: get_env().from_string(page_html()))  # parsed once

PERIOD_MS: Final = 125
"""Milliseconds between two updates of a page: eight a second."""


class Session:
    """Shows a run on a board, or the runs to choose from.

    Only its own periodic callback and the page's messages change its models.
    """

    def __init__(
        self,
        library: Library,
        run: str | None = None,
        others: Sequence[str] = (),
        *,
        may_control: bool = True,
    ) -> None:
        self._library = library
        self._may_control = may_control
        self._board = Board()
        self._view = View()
        self._page: RunPage | None = None
        self._held: list[ServedRun] = []
        self._nothing = Folds()
        self._context: BokehSessionContext | None = None
        self._followed: SharedPage | None = None
        self._number = 0
        try:
            if library.single or run is not None:
                self._open(run or "", () if library.single else others)
            with as_damage(self._path, "shown", EXPORT_HOLDS_MORE):
                self._update()
        except BaseException:
            self._release()
            raise

    def fill(self, document: Document) -> None:
        """Puts the page, with a place for each chart, into a document."""
        document.template = _template()
        document.template_variables.update(page_variables())
        for root in self._board.roots().values():
            document.add_root(root)

    def attach(self, document: Document) -> None:
        """Begins to update the page, from callbacks of its own document."""
        self._board.view.on_change("data", self._on_view)
        # Bokeh awaits what a callback returns, though its types do not mention it.
        document.add_periodic_callback(cast(Callable[[], None], self._on_period), PERIOD_MS)
        self._context = _context_of(document)
        document.on_session_destroyed(self._close)

    def _open(self, run: str, others: Sequence[str]) -> None:
        names = (run, *dict.fromkeys(others))
        for name in names:
            self._held.append(self._library.hold(name))
        shown, *compared = self._held
        self._page = RunPage(shown, self._board, names, compared, may_control=self._may_control)

    def _close(self, context: SessionContext) -> None:
        """Frees everything that this page alone uses."""
        del context
        if self._page is not None:
            self._page.close()
            self._page.run.shared.join(self, None)
        self._release()
        self._page = self._followed = self._context = None

    @property
    def _path(self) -> Path | None:
        """The shown run's folder, None without one."""
        return self._held[0].feed.path if self._held else None

    def _release(self) -> None:
        for run in self._held:
            self._library.release(run)
        self._held.clear()

    def _on_view(self, attribute: str, old: object, new: object) -> None:
        del attribute, old, new
        before, self._view = self._view, self._board.chosen()
        view, page = self._view, self._page
        if page is not None:
            if self._may_control:
                self._press(page.run, before, view)
            page.choose(view)
        self._update_alone()

    @staticmethod
    def _press(run: ServedRun, before: View, view: View) -> None:
        """Obeys the buttons that were pressed."""
        if view.captures > before.captures:
            run.captures.start()
        if view.simulations > before.simulations and run.captures.possible:
            run.simulations.start(view.simulated, view.sizes)
        if view.orders > before.orders and run.loops is not None:
            press(view.loop, view.order)

    def _on_period(self) -> Awaitable[None] | None:
        """Sends what changed: the shared page's messages, or updates of this page alone."""
        page, shared = self._page, self._join()
        if page is None or shared is None:
            self._update_alone()
            return None
        folds = page.run.feed.folds
        facts = partial(page.facts, self._view, folds, library=self._has_others)
        shared.update(folds, facts, page.run.fail_to_show)
        messages = shared.since(self._number) if self._followed is shared else None
        if messages is None:  # this page follows only from now on, or was too slow
            self._update_alone()
            self._followed = shared
        self._number = shared.number
        session = self._context.session if self._context is not None else None
        return send_to_pages(session, messages) if messages and session is not None else None

    def _join(self) -> SharedPage | None:
        """Returns the shared page to follow, None when this one shows something of its own."""
        view, page = self._view, self._page
        if page is None:
            return None
        pressed = {name: getattr(view, name) for name in PRESSED}
        follows = not page.compares and view == View(page=view.page, **pressed)
        followed = view.page if follows and view.page in PAGES else None
        return page.run.shared.join(self, followed, may_control=self._may_control)

    def _update_alone(self) -> None:
        """Updates the board and sends all changes as one message: the page draws it once."""
        if self._followed is not None:
            self._followed = None
            self._board.forget()
        with pn.io.unlocked(policy="combine"):
            self._update()

    def _update(self) -> None:
        """Shows what changed since the last update on the open page."""
        runs: Facts | None = None
        if self._view.page == "runs" or self._page is None:
            summaries = self._library.summaries()
            self._board.set_rows("runs", run_rows(summaries))
            runs = runs_facts(len(summaries), self._library.left_out)
        if self._page is not None:
            self._page.update(self._view, library=self._has_others, runs=runs)
        else:
            self._board.update(self._nothing, self._view)
            self._board.set_facts({**INDEX, **(runs or {})})

    @property
    def _has_others(self) -> bool:
        """True if there are other runs to choose from."""
        return not self._library.single


def _context_of(document: Document) -> BokehSessionContext | None:
    context = document.session_context
    return context if isinstance(context, BokehSessionContext) else None


def show(library: Library) -> None:
    """Puts a page into the current document.

    The page's address names the run to show, and those to compare it with:
    `?run=NAME&compare=NAME&compare=NAME`.
    """
    document = pn.state.curdoc
    assert document is not None  # Panel calls this to make a document
    document.title = "distlab"
    try:
        run, others, role = (_values(document, name) for name in ("run", "compare", ROLE))
        session = Session(library, next(iter(run), None), others, may_control=role != ["view"])
    except NotARunError as error:
        show_notice(error)
        return
    with document.models.freeze():  # or Bokeh would walk through all models for each chart
        session.fill(document)
    session.attach(document)


def _values(document: Document, name: str) -> list[str]:
    """Returns the values of an argument of the page's address."""
    context = _context_of(document)
    return values(context.request.arguments, name) if context and context.request else []
