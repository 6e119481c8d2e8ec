"""How many pages a server opens: for links of other sites, and for who never shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Browser

from distlab_dashboard import DashboardServer, page_handler, serve, visits
from distlab_dashboard.visits import MOST_VISITS, Visits
from tests.synthetic import ListSource, whole_run
from tests.ui.asking import Answer, ask
from tests.ui.conftest import Pages, Served
from tests.ui.viewer import in_a_loop, viewing

TOKEN = "a long token"
SITES = ("cross-site", "same-site")


def source() -> ListSource:
    made = ListSource(whole_run(30))
    made.live = False
    return made


@pytest.fixture
def server() -> Iterator[DashboardServer]:
    made = serve(source())
    yield made
    made.stop()


def visit(server: DashboardServer, path: str = "", site: str = "cross-site", **more: str) -> Answer:
    """Asks as a browser does whose user followed a link of another site."""
    fetched = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    return ask(server, path, headers={**fetched, **more})


def has_session(answer: Answer) -> bool:
    return answer.status == 200 and b'"token":"' in answer.body


def sessions(server: DashboardServer) -> int:
    assert server._server is not None
    return len(server._server.get_sessions("/"))


def test_ten_visits_of_other_sites_are_let_in_each_minute() -> None:
    now = [0.0]
    counted = Visits(lambda: now[0])
    for second in range(MOST_VISITS):
        now[0] = float(second)
        assert counted.admit()
    for now[0] in (10.0, 59.9):
        assert not counted.admit()
    now[0] = 60.0  # of those of the first second, and of no other, a minute is over
    assert [counted.admit() for _ in range(2)] == [True, False]


def test_more_links_of_other_sites_are_answered_without_a_session(server: DashboardServer) -> None:
    given = [visit(server, site=SITES[place % 2]) for place in range(MOST_VISITS + 5)]
    assert [has_session(one) for one in given] == [True] * MOST_VISITS + [False] * 5
    assert sessions(server) == MOST_VISITS
    asked = visit(server, "?run=&other=%22%3E%3Cb%3E")
    assert asked.status == 200
    assert b'<a href="?run=">Open the dashboard</a>' in asked.body
    policy = asked.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert asked.headers["Cache-Control"] == "no-store"
    for site in ("same-origin", "none"):  # its own link, and addresses that somebody typed
        assert has_session(visit(server, site=site))
    assert has_session(ask(server))


def test_who_had_the_token_needs_it_no_more_for_the_link(served: Served) -> None:
    made = served(source(), token=TOKEN)
    for _ in range(3):  # these open no page, and are not counted
        assert visit(made, "?token=a+wrong+one").status == 401
        assert visit(made).status == 401
    given = [visit(made, "?token=a+long+token&run=") for _ in range(MOST_VISITS + 1)]
    assert [has_session(one) for one in given] == [True] * MOST_VISITS + [False]
    last = given[-1]
    assert b"token" not in last.body
    cookie = last.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    kept = cookie.partition(";")[0]
    assert has_session(visit(made, "?run=", site="same-origin", Cookie=kept))


def test_the_link_of_the_small_page_opens_the_dashboard(
    monkeypatch: pytest.MonkeyPatch, served: Served, new_page: Pages
) -> None:
    monkeypatch.setattr(visits, "MOST_VISITS", 1)
    made = served(source(), token=TOKEN)
    page = new_page().page
    other = served(source()).url  # any other port: its pages are of another origin
    for path in ("one", "two"):
        page.route(
            f"{other}{path}",
            lambda route: route.fulfill(
                body=f"<!doctype html><a href='{made.url}'>a run</a>", content_type="text/html"
            ),
        )
    page.goto(f"{other}one")
    page.click("text=a run")
    page.wait_for_selector("html[data-ready=true]")
    page.goto(f"{other}two")
    page.click("text=a run")
    page.click("text=Open the dashboard")
    page.wait_for_selector("html[data-ready=true]")


def test_a_page_that_opened_the_dashboard_can_not_lead_its_window(
    server: DashboardServer, served: Served, browser: Browser
) -> None:
    """Else it could navigate the window again and again: a page is made each time."""
    other = served(source()).url
    page = browser.new_page()
    try:
        page.route(f"{other}win", lambda route: route.fulfill(
            body="<!doctype html><button onclick=\"shown = window.open('about:blank')\">win",
            content_type="text/html",
        ))  # fmt: skip
        page.goto(f"{other}win")
        with page.expect_popup() as popup:
            page.click("button")
        page.evaluate("(url) => { shown.location = url }", server.url)
        page.wait_for_function("shown.closed")  # as it seems to its opener
        popup.value.wait_for_selector("html[data-ready=true]")
        made = sessions(server)
        page.evaluate("(url) => { shown.location = url + '#steps' }", server.url)
        page.evaluate("(url) => { shown.location = url + '?run=' }", server.url)
        popup.value.click("nav a[data-page=compile]")
        popup.value.wait_for_selector("html[data-shown=compile]")
        assert sessions(server) == made
    finally:
        page.context.close()


def test_few_sessions_wait_for_browsers_that_never_come(
    server: DashboardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_handler, "MOST_UNCONNECTED", 3)

    async def attempt() -> None:
        async with viewing(server) as viewer:  # a session that is shown is not counted
            before = await viewer.settled()
            with ThreadPoolExecutor(12) as pool:
                given = list(pool.map(lambda _: ask(server), range(12)))
            assert sorted(one.status for one in given) == [200] * 3 + [503] * 9
            refused = next(one for one in given if one.status == 503)
            assert b"no browser shows them yet" in refused.body
            assert refused.headers["Retry-After"] == "10"
            assert b"<script" not in refused.body
            assert sessions(server) == 4
            assert ask(server, method="HEAD").status == 200
            assert (await asyncio.to_thread(ask, server, "health")).status == 200
            assert await viewer.document() == before

    in_a_loop(attempt)
