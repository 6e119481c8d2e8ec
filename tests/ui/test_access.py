"""Access to a dashboard: from this machine, and elsewhere with the token."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

import distlab as dl
from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab_dashboard import DashboardServer, serve
from distlab_dashboard.brake import MOST_GUESSES
from tests.synthetic import ListSource, whole_run
from tests.ui.asking import ask, shake_hands

TOKEN = "a long token & more"
RIGHT = "?token=a%20long%20token%20%26%20more"


def source() -> ListSource:
    made = ListSource(whole_run(30))
    made.live = False
    return made


@pytest.fixture(params=["", "behind/a/proxy"])
def server(request: pytest.FixtureRequest) -> Iterator[DashboardServer]:
    made = serve(source(), token=TOKEN, prefix=request.param)
    yield made
    made.stop()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7", "example.org", ""])
def test_an_address_that_others_can_reach_needs_a_token(address: str) -> None:
    with pytest.raises(ArgumentValueError, match="a token is needed there"):
        serve(source(), address=address)


@pytest.mark.parametrize("token", ["", "abc", "1234567"])
def test_a_token_that_can_be_guessed_is_refused(token: str) -> None:
    with pytest.raises(ArgumentValueError, match=f"at least 8 characters, got {len(token)}"):
        serve(source(), token=token)


@pytest.mark.parametrize(
    "token",
    [" " * 8, "\t\n" * 5, "a secret read from a file\n", " a secret", "\x00" * 8, "a\nb secret"],
)
def test_a_token_that_no_address_keeps_is_refused(token: str) -> None:
    with pytest.raises(ArgumentValueError, match="neither begins nor ends with white space"):
        serve(source(), token=token)


@pytest.mark.parametrize("token", [b"a long token", 12_345_678, 0, False, True, ["a long token"]])
def test_a_token_is_a_text(token: object) -> None:
    with pytest.raises(ArgumentTypeError, match="A token is a str, got"):
        serve(source(), token=token)  # type: ignore[arg-type]


def test_a_token_that_no_address_holds_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match=r"at most 1000 characters.*, got 1001"):
        serve(source(), token="x" * 1_001)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:5006", "http://localhost", "[::1]", "localhost\x00", "local host", "a/b", "::1]"],
)
def test_what_is_no_address_is_refused_as_one(address: str) -> None:
    with pytest.raises(ArgumentValueError, match="without http://, brackets and port, got '"):
        serve(source(), address=address, token=TOKEN)


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7", "no-such-host.invalid"])
@pytest.mark.parametrize("port", [None, 0, 5_250])
def test_an_address_of_another_machine_is_told_as_one(address: str, port: int | None) -> None:
    with pytest.raises(ArgumentValueError, match=f"this machine, and '{address}' is none"):
        serve(source(), address=address, port=port, token=TOKEN)


@pytest.mark.parametrize("value", ["no", 0, None])
def test_whether_to_open_a_browser_is_true_or_false(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=f"open_browser must be .* got {value!r}"):
        serve(source(), open_browser=value)


@pytest.mark.parametrize("prefix", [5, None, b"a", ("a",)])
def test_a_prefix_is_a_text(prefix: object) -> None:
    with pytest.raises(ArgumentTypeError, match="prefix is a str such as"):
        serve(source(), prefix=prefix)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "prefix",
    [
        "a b",
        "a(b",
        "<script>",
        "../x",
        "a/./b",
        "a?b",
        "a#b",
        "{nonce}",
        "\u00e9",
        "a//b",
        "a\n",
        "a+",
    ],
)
def test_a_prefix_that_no_browser_asks_for_is_refused(prefix: str) -> None:
    with pytest.raises(ArgumentValueError, match="prefix is the path at which a proxy serves"):
        serve(source(), prefix=prefix)


@pytest.mark.parametrize(
    "prefix", ["/user/ada.b@example.org/proxy/5006/", "a%20b/%C3%A9", "~ada/x_y-z", "a:b", "/"]
)
def test_a_page_is_served_at_its_prefix(prefix: str) -> None:
    made = serve(source(), prefix=prefix)
    try:
        assert made.url.startswith(f"http://127.0.0.1:{made.port}/{prefix.strip('/')}")
        for path in ("", "health", "static/js/bokeh.min.js", "export/run.html"):
            assert ask(made, path).status == 200, path
    finally:
        made.stop()


@pytest.mark.parametrize("address", [5, b"127.0.0.1", None])
def test_an_address_is_a_text(address: object) -> None:
    with pytest.raises(ArgumentTypeError, match="address is a str"):
        serve(source(), address=address, token=TOKEN)  # type: ignore[arg-type]


def test_guessing_the_token_is_slowed_down_and_viewers_stay() -> None:
    made = serve(source(), token=TOKEN)
    try:
        cookie = ask(made, RIGHT).headers["Set-Cookie"].partition(";")[0]
        for _ in range(3 * MOST_GUESSES):  # the same again and again is no guess
            assert ask(made, "?token=an-old-one").status == 401
        for number in range(MOST_GUESSES - 1):
            assert ask(made, f"?token=guess-{number}").status == 401
        for path in (RIGHT, "?token=another", "health" + RIGHT, "export/run.html" + RIGHT):
            late = ask(made, path)
            assert late.status == 429
            assert 0 < int(late.headers["Retry-After"]) <= 60
            assert b"Try again in" in late.body
        for path in ("", "?token=wrong", RIGHT):
            assert ask(made, path, headers={"Cookie": cookie}).status == 200
        assert ask(made).status == 401
    finally:
        made.stop()


def test_wrong_links_of_another_site_do_not_keep_out_who_opens_the_address() -> None:
    followed = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    made = serve(source(), token=TOKEN)
    try:
        for number in range(MOST_GUESSES):
            assert ask(made, f"?token=guess-{number}", headers=followed).status == 401
        assert ask(made, RIGHT, headers=followed).status == 429
        assert ask(made, RIGHT, headers={"Sec-Fetch-Site": "none"}).status == 200
        assert ask(made, RIGHT).status == 200
    finally:
        made.stop()


def test_tokens_of_addresses_that_nobody_has_opened_count_for_nothing() -> None:
    ahead = {"Sec-Fetch-Site": "none", "Sec-Purpose": "prefetch"}
    made = serve(source(), token=TOKEN)
    try:
        for number in range(MOST_GUESSES + 1):
            assert ask(made, f"?token=guess-{number}", headers=ahead).status == 403
        assert ask(made, RIGHT).status == 200
    finally:
        made.stop()


def test_a_cookie_is_no_way_to_find_the_token() -> None:
    first, second = serve(source(), token=TOKEN), serve(source(), token=TOKEN)
    try:
        cookies = [ask(made, RIGHT).headers["Set-Cookie"] for made in (first, second)]
        names, values = zip(
            *(cookie.partition(";")[0].split("=") for cookie in cookies), strict=True
        )
        assert len({*names}) == len({*values}) == 2
        assert all("HttpOnly" in cookie and "SameSite=Lax" in cookie for cookie in cookies)
        swapped = {"Cookie": f"{names[0]}={values[1]}"}
        assert ask(first, headers=swapped).status == 401
    finally:
        first.stop()
        second.stop()


def test_the_form_keeps_the_run_that_the_address_names() -> None:
    made = serve(source(), token=TOKEN)
    try:
        body = ask(made, "?run=%22%3E%3Cb%3E&compare=a").body
        assert b'name="run" value="&quot;&gt;&lt;b&gt;"' in body
        assert b'name="compare" value="a"' in body
    finally:
        made.stop()


@pytest.mark.parametrize("address", ["::1", "::", "localhost"])
def test_addresses_of_ipv6_are_served(address: str) -> None:
    made = serve(source(), address=address, token=TOKEN)
    try:
        page = {"localhost": "http://localhost:"}.get(address, "http://[::1]:")
        assert made.url.startswith(f"{page}{made.port}/?token=")
        assert ask(made, RIGHT).status == 200
        assert ask(made, "health" + RIGHT, headers={"Host": f"[::1]:{made.port}"}).status == 200
        assert shake_hands(made, {"Origin": f"http://[::1]:{made.port}"}) == 401
    finally:
        made.stop()


def test_a_page_returns_to_a_server_that_was_started_again(browser: Browser) -> None:
    first = serve(source(), token=TOKEN, port=0)  # one that nobody else takes meanwhile
    page = browser.new_page()
    page.goto(first.url)
    page.wait_for_selector("html[data-ready=true]")
    page.evaluate("window.before = true")
    first.stop()
    page.get_by_text("No connection", exact=True).wait_for()
    second = serve(source(), token=TOKEN, port=first.port)
    try:
        page.wait_for_function("window.before === undefined")
        page.wait_for_selector("html[data-ready=true]")
    finally:
        page.close()
        second.stop()


def test_the_token_stands_in_no_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who imports Dask has its set-up of Tornado's loggers, which print nearly nothing.
    monkeypatch.setattr(logging.getLogger("tornado"), "propagate", True)
    made = serve(source(), token=TOKEN)
    try:
        with caplog.at_level("DEBUG"), caplog.at_level("DEBUG", logger="tornado"):
            assert ask(made, f"{RIGHT}&run=nothing").status == 404
            assert ask(made, "?run=nothing&token=a%20long%20guess").status == 401
            for stranger in ({"Host": "evil.test"}, {"Sec-Fetch-Site": "cross-site"}):
                assert ask(made, f"health{RIGHT}", headers=stranger).status == 403
        assert "run=nothing" in caplog.text
        assert "403 GET /health" in caplog.text
        assert "a%20long" not in caplog.text
    finally:
        made.stop()


def test_all_addresses_can_be_served_with_a_token() -> None:
    made = serve(source(), address="0.0.0.0", token=TOKEN)
    try:
        assert ask(made, "health").status == 401
        assert ask(made, "health" + RIGHT).status == 200
    finally:
        made.stop()


def test_without_the_token_nothing_of_the_run_is_given(server: DashboardServer) -> None:
    for path in ("", "health", "health?token=wrong", "?token=wrong", "export/run.html", "static/x"):
        answer = ask(server, path)
        assert answer.status == 401
        assert b"made-up" not in answer.body
    assert shake_hands(server, {}) == 401


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
