"""Access to a dashboard: from this machine, and elsewhere with the token."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser

import distlab as dl
from distlab.errors import ArgumentValueError
from distlab_dashboard import DashboardServer, serve
from tests.synthetic import ListSource, whole_run

TOKEN = "a long token & more"


def source() -> ListSource:
    made = ListSource(whole_run(30))
    made.live = False
    return made


@pytest.fixture(params=["", "behind/a/proxy"])
def server(request: pytest.FixtureRequest) -> Iterator[DashboardServer]:
    made = serve(source(), token=TOKEN, prefix=request.param)
    yield made
    made.stop()


def answer(server: DashboardServer, path: str, **headers: str) -> tuple[int, bytes]:
    """Asks the server for a path below the page's address."""
    at = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(at.hostname), server.port, timeout=30)
    connection.request("GET", at.path + path, headers=headers)
    response = connection.getresponse()
    found = response.status, response.read()
    connection.close()
    return found


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7", "example.org", ""])
def test_an_address_that_others_can_reach_needs_a_token(address: str) -> None:
    with pytest.raises(ArgumentValueError, match="a token is needed there"):
        serve(source(), address=address)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="at least 8 characters, got 3"):
        serve(source(), token="abc")


def test_all_addresses_can_be_served_with_a_token() -> None:
    made = serve(source(), address="0.0.0.0", token=TOKEN)
    try:
        assert answer(made, "health")[0] == 401
        assert answer(made, "health?token=a%20long%20token%20%26%20more")[0] == 200
    finally:
        made.stop()


def test_without_the_token_nothing_of_the_run_is_given(server: DashboardServer) -> None:
    for path in ("health", "health?token=wrong", "?token=wrong"):
        status, body = answer(server, path)
        assert status in {302, 401}
        assert b"made-up" not in body
    status, _ = answer(
        server,
        "ws",
        Connection="Upgrade",
        Upgrade="websocket",
        **{"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="},
    )
    assert status in {401, 403}


def test_a_browser_with_the_address_sees_the_run_and_one_without_is_asked(
    server: DashboardServer, browser: Browser
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.url.partition("?")[0])
    assert "needs its token" in page.locator("h1").inner_text()
    page.fill("input[name=token]", "wrong, wrong")
    page.click("button")
    assert "needs its token" in page.locator("h1").inner_text()
    page.fill("input[name=token]", TOKEN)
    page.click("button")
    page.wait_for_selector("html[data-ready=true]")
    assert page.locator("[data-text=run]").first.inner_text() == "made-up"
    again = context.new_page()
    again.goto(server.url.partition("?")[0])  # the cookie is enough from here on
    again.wait_for_selector("html[data-ready=true]")
    context.close()
    other = browser.new_context()
    page = other.new_page()
    page.goto(server.url)
    page.wait_for_selector("html[data-ready=true]")
    other.close()


def handshake(server: DashboardServer, origin: str) -> int:
    """Asks for the page's web socket as a browser on a page of `origin` does."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    headers = {
        "Origin": origin,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "bokeh, nothing",
    }
    connection.request("GET", urlsplit(server.url).path + "ws", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_pages_of_other_sites_are_refused_unless_they_are_named() -> None:
    made = serve(source(), origins=("hub.example.org",))
    try:
        assert handshake(made, "https://hub.example.org") == 101
        assert handshake(made, f"http://127.0.0.1:{made.port}") == 101
        for stranger in ("https://example.org", "null", "http://127.0.0.1:1", "http://evil.org:80"):
            assert handshake(made, stranger) == 403
    finally:
        made.stop()


@pytest.mark.parametrize("argument", ["run", "compare"])
@pytest.mark.parametrize(
    "attack",
    [
        "<img src=x onerror='window.attacked = true'>",
        "&lt;img src=x onerror='window.attacked = true'&gt;",
        "</pre><script>window.attacked = true</script>",
    ],
)
def test_markup_in_the_address_is_shown_as_text(
    tmp_path: Path, browser: Browser, argument: str, attack: str
) -> None:
    for name in ("first", "second"):
        with dl.record(tmp_path / name) as recording:
            recording.log(0, loss=1.0)
    made = serve(tmp_path)
    context = browser.new_context()
    page = context.new_page()
    others = "" if argument == "run" else "run=first&"
    page.goto(f"{made.url}?{others}{argument}={quote(attack)}")
    shown = page.get_by_text("attacked", exact=False).first
    shown.wait_for()
    assert attack in shown.inner_text()
    assert page.evaluate("window.attacked") is None
    context.close()
    made.stop()
