"""A real browser, and pages that note their errors and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from bokeh.io.state import curstate
from playwright.sync_api import Browser, Page

from distlab.events import Event, Unknown
from distlab_dashboard import DashboardServer, serve
from tests.synthetic import ListSource, whole_run

LIMIT_MS = 60_000

Served: TypeAlias = Callable[..., DashboardServer]
"""Serves the dashboard of a source with options of `serve`, until the test ends."""
Pages: TypeAlias = "Callable[..., Watched]"
"""Opens an empty page of a width and a colour scheme, until the test ends."""


@pytest.fixture(autouse=True, scope="module")
def current_document() -> Iterator[None]:
    """Forgets Bokeh's current document: threads of servers may leave a closed one there."""
    yield
    curstate().reset()


def ended(events: list[Event | Unknown]) -> ListSource:
    """Returns the source of a run that has ended."""
    source = ListSource(events)
    source.live = False
    return source


@contextmanager
def serving(source: object, **options: Any) -> Iterator[DashboardServer]:
    """Serves a dashboard until the end of the block."""
    made = serve(source, **options)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[DashboardServer]:
    """A server of a run of three steps that has ended."""
    with serving(ended(whole_run(3))) as made:
        yield made


class Watched:
    """A page of the dashboard, with what went wrong on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(LIMIT_MS)
        page.on("console", lambda message: self._on_console(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._on_request(request.url))
        page.on("response", lambda answer: self._on_response(answer.status, answer.url))

    def _on_console(self, kind: str, text: str) -> None:
        if kind == "error":
            self.errors.append(text)
        elif kind == "warning" and "[bokeh" in text:
            self.warnings.append(text)

    def _on_request(self, url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.foreign.append(url)

    def _on_response(self, status: int, url: str) -> None:
        if status >= 400:
            self.errors.append(f"{status} {url}")

    def open(self, url: str) -> Watched:
        """Opens the dashboard and waits until it shows the run."""
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready=true]")
        name = urlsplit(url).fragment.partition("?")[0]
        if name:
            self.shown(name)
        return self

    def tab(self, name: str) -> None:
        """Opens one of its pages by its tab."""
        self.page.click(f'nav a[data-page="{name}"]')
        self.page.wait_for_selector(f'section[data-page="{name}"]:not([hidden])')
        self.shown(name)

    def shown(self, name: str) -> None:
        """Waits until the session has made a page's charts."""
        self.page.wait_for_selector(f'html[data-shown="{name}"]')

    def text(self, place: str) -> str:
        """The text at one of the page's places."""
        return self.page.locator(f'[data-text="{place}"]').first.inner_text()

    def wait_for_text(self, place: str, text: str) -> None:
        """Waits until a place says exactly this."""
        self.page.wait_for_function(
            "([place, text]) => document.querySelector(`[data-text='${place}']`)"
            ".textContent === text",
            arg=[place, text],
        )

    def serious(self) -> list[tuple[str, list[str]]]:
        """What axe-core finds serious on the page as it is, and where."""
        answer = Axe().run(self.page, options={"resultTypes": ["violations"]}).response
        assert answer["passes"], "axe looked at nothing"
        return [
            (one["id"], [node["html"][:160] for node in one["nodes"]])
            for one in answer["violations"]
            if one["impact"] in {"serious", "critical"}
        ]

    def rows(self, table: str) -> list[list[str]]:
        """The texts of a table's cells, row by row."""
        found: list[list[str]] = self.page.evaluate(
            "(table) => [...document.querySelector(table).tBodies[0].rows]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))",
            table,
        )
        return found

    def table(self) -> dict[str, list[str]]:
        """The columns of the table of reductions, as they are written on the page."""
        return {
            heading: self.page.locator(
                f".reductions tbody tr > :nth-child({place + 1})"
            ).all_inner_texts()
            for place, heading in enumerate(
                self.page.locator(".reductions thead th[scope=col]").all_inner_texts()
            )
        }

    def wait_for_times(self, times: str) -> None:
        """Waits until each row of the table of reductions ran exactly so often."""
        self.page.wait_for_function(
            """(times) => {
              const cells = [...document.querySelectorAll(".reductions tbody td:nth-child(6)")]
              return cells.length && cells.every((cell) => cell.textContent === times)
            }""",
            arg=times,
        )

    def data(self, root: str, source: str) -> dict[str, Any]:
        """The data that a chart's source holds in the browser."""
        found: dict[str, Any] = self.page.evaluate(_DATA, [root, source])
        return found


_DATA = """
([root, name]) => {
  const models = Bokeh.documents[0].roots().find((model) => model.name === root).references()
  const source = Array.from(models).find((model) => model.name === name && model.get_column)
  return Object.fromEntries(source.columns().map((column) => {
    const values = Array.from(source.get_column(column))
    return [column, values.map((value) => ArrayBuffer.isView(value) ? Array.from(value) : value)]
  }))
}
"""


@pytest.fixture
def served() -> Iterator[Served]:
    """Serves dashboards, and stops them when the test's pages are closed."""
    servers: list[DashboardServer] = []

    def make(source: object, **options: Any) -> DashboardServer:
        servers.append(serve(source, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def new_page(browser: Browser, served: Served) -> Iterator[Pages]:
    """Makes pages, closes them, and fails the test for what went wrong on them.

    It needs `served` only for the order: a page whose server stops first rightly complains.
    """
    made: list[Watched] = []

    def make(*, width: int = 1280, scheme: Literal["light", "dark"] = "light") -> Watched:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        made.append(Watched(page))
        return made[-1]

    yield make
    for watched in made:
        watched.page.close()
    assert [error for watched in made for error in watched.errors] == []
    assert [url for watched in made for url in watched.foreign] == []
