"""Access to a dashboard: hosts, origins, the token, and what hostile requests are answered."""

from __future__ import annotations

import itertools
import json
import logging
import re
import socket
import threading
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser

import distlab as dl
from distlab.control.loops import loops
from distlab.errors import DistlabError
from distlab.recording import RingRecorder
from distlab_dashboard import DashboardServer, serve
from tests.patience import wait_until
from tests.synthetic import whole_run
from tests.ui.asking import ask, shake_hands
from tests.ui.conftest import Served, ended, serving

TOKEN = "a long token & more"
RIGHT = "?token=a%20long%20token%20%26%20more"
PATHS = ("", "health", "export/run.html", "static/js/bokeh.min.js", "nothing")
VISIT = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def server() -> Iterator[DashboardServer]:
    origins = ("hub.example.org", "lab.example.org:8000")
    with serving(ended(whole_run(3)), prefix="behind/a/proxy", origins=origins) as made:
        yield made


@pytest.fixture(scope="module")
def guarded() -> Iterator[DashboardServer]:
    with serving(ended(whole_run(3)), prefix="behind/a/proxy", token=TOKEN) as made:
        yield made


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


REFUSED: tuple[tuple[str, dict[str, Any], tuple[Any, ...], str], ...] = (
    ("address", {}, ("0.0.0.0", "192.0.2.7"), "a token is needed there"),
    (
        *("address", {"token": TOKEN}),
        *(
            ("2001:db8::7", "no-such-host.invalid", "http://localhost"),
            "this machine, and '.*' is none",
        ),
    ),
    ("token", {}, ("", "1234567", "a secret\n"), "A token has at least 8"),
    ("view_token", {}, (TOKEN,), "so a token of its own is needed"),
    ("view_token", {"token": TOKEN}, (TOKEN,), "so a token of its own is needed"),
    ("view_token", {"token": TOKEN}, ("", "1234567"), "A token has at least 8"),
    ("prefix", {}, ("a(b", "../x", "a?b", "{nonce}"), "prefix is the path at"),
    ("origins", {}, ("hub.example.org", (b"a",), 3), "origins is a sequence"),
    ("origins", {}, (("https://hub.example.org",), ("*.example.org",)), "An origin is the host"),
)


def test_serve_refuses_wrong_arguments() -> None:
    shown = ended(whole_run(3))
    for option, others, values, said in REFUSED:
        for value in values:
            with pytest.raises(DistlabError, match=said):
                serve(shown, **{option: value, **others})


@pytest.mark.slow
def test_pages_are_served_at_any_address_and_prefix(served: Served) -> None:
    shown = ended(whole_run(3))
    for prefix in ("/user/ada.b@example.org/proxy/5006/", "a%20b/%C3%A9", "/"):
        made = served(shown, prefix=prefix)
        assert made.url.startswith(f"http://127.0.0.1:{made.port}/{prefix.strip('/')}")
        for path in ("", "health", "static/js/bokeh.min.js"):
            assert ask(made, path).status == 200, (prefix, path)
    for address in ("::1", "::", "localhost"):
        made = served(shown, address=address, token=TOKEN)
        name = "localhost" if address == "localhost" else "[::1]"
        assert made.url.startswith(f"http://{name}:{made.port}/?token=")
        assert ask(made, RIGHT).status == 200
        assert ask(made, "health" + RIGHT, headers={"Host": f"[::1]:{made.port}"}).status == 200
        assert shake_hands(made, {"Origin": f"http://[::1]:{made.port}"}) == 401


def test_a_server_for_others_answers_under_its_own_names(served: Served) -> None:
    made = served(ended(whole_run(3)), address="0.0.0.0", token=TOKEN)
    own = socket.gethostname()
    for host in ("192.0.2.7", f"[2001:db8::1]:{made.port}", own, f"{own}.local:1", "localhost"):
        assert ask(made, "health", headers={"Host": host}).status == 401, host
    for host in ("evil.test", "192.0.2.7.evil.test"):
        assert ask(made, "health", headers={"Host": host}).status == 403, host
    # A site may stand behind an address as well: it is not this server's for that.
    strange = f"http://192.0.2.9:{made.port}"
    assert shake_hands(made, {"Host": f"192.0.2.7:{made.port}", "Origin": strange}) == 403


class Case(NamedTuple):
    """A request, with what it is answered; `{port}` in a header stands for the server's."""

    path: str = ""
    headers: Mapping[str, str] = MappingProxyType({})
    method: str = "GET"
    status: tuple[int, ...] = (403,)
    shakes: bool = False


HOSTS = (
    *("evil.test", "evil.test:{port}", "127.0.0.1.evil.test:{port}", "localhost.evil.test"),
    *("192.0.2.7:{port}", "[2001:db8::1]:{port}", "0.0.0.0:{port}", "foo.localhost:{port}"),
    *("hub.example.org:8000", "lab.example.org", "www.hub.example.org", "hub.example.org."),
    *("127.0.0.1:{port}@evil.test", "evil.test/127.0.0.1", "127.0.0.1 evil.test", ":{port}"),
    *("", "127.0.0.1,evil.test", "[::1", "localhost:", "localhost:{port}:1", "xn--evil-\u00fc"),
)
ORIGINS = (
    *("http://evil.test", "http://evil.test:{port}", "null", "http://127.0.0.1:1", "", "x"),
    *("https://hub.example.org.evil.test", "http://lab.example.org", "http://[", "file://"),
)
SITES = ("cross-site", "same-site")
METHODS = ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE")
FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
NOWHERE = (
    *("autoload.js?bokeh-autoload-element=x", "metadata", "../etc", "x", "export/../health"),
    *("static/../../../etc/passwd", "static/%2e%2e/%2e%2e/etc/passwd", "static//etc/passwd"),
    *("static/extensions/panel/..%2F..%2Fsetup.py", "static/js/../js/bokeh.min.js", "static/"),
    *("static/js", "static/js/lib", "static/js/nothing.js", "static/extensions/nothing/x.js"),
    *("static/js/bokeh.min.js/", "static/js/%ff.js", "static/js/%00", "static/js/a%00.css"),
    *("export/trace.json%00", "?run=nothing", "export/run.html?run=nothing"),
)
HOSTILE = (
    *(Case(path, {"Host": host}, status=(400, 403)) for path in PATHS for host in HOSTS),
    *(
        Case(path, {"Origin": origin, "Sec-Fetch-Site": site})
        for path in PATHS
        for origin in ORIGINS
        for site in ("same-origin", "cross-site")
    ),
    *(Case("ws", {"Host": one}, status=(400, 403), shakes=True) for one in HOSTS),
    *(Case("ws", {"Origin": one}, shakes=True) for one in ORIGINS),
    *(
        Case(path, {"Sec-Fetch-Site": site, **how})
        for site in SITES
        for path in ("export/run.html", "health", "ws", "static/js/bokeh.min.js")
        for how in (VISIT, {"Sec-Fetch-Mode": "no-cors"})
    ),
    *(Case("", {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "image"}) for site in SITES),
    *(
        Case(path, method=method, status=(405,))
        for method in METHODS
        for path in ("", "export/run.html", "health", "metrics")
    ),
    *(
        Case("", {"Content-Type": form, "Content-Length": "0"}, method="POST", status=(405,))
        for form in FORMS
    ),
    *(Case("health", {"Content-Type": f, "Content-Encoding": "x"}, status=(200,)) for f in FORMS),
    *(Case(path, status=(404,)) for path in NOWHERE),
    Case("health", {"X-Long": "x" * 100_000}, status=(0, 400, 431)),
    Case("health", {"Content-Length": "1000000000"}, status=(0, 400, 413)),
)


def test_hostile_requests_get_nothing(
    server: DashboardServer, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = []
    for case in HOSTILE:
        headers = {
            name: value.format(port=server.port).encode().decode("latin-1")
            for name, value in case.headers.items()
        }
        try:
            if case.shakes:
                status, body = shake_hands(server, headers), b""
            else:
                answer = ask(server, case.path, method=case.method, headers=headers)
                status, body = answer.status, answer.body
                assert "Access-Control-Allow-Origin" not in answer.headers
        except ConnectionError:
            status, body = 0, b""  # the server need not answer it
        if status not in case.status or (status != 200 and b"made-up" in body):
            wrong.append((status, case))
    assert wrong == []
    for lines in (b"", b"Host: 127.0.0.1\r\nHost: evil.test\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\n" + lines + b"Connection: close\r\n\r\n")
            with connection.makefile("rb") as received:
                assert b"HTTP/1.1 200" not in received.read()
    assert [
        one for one in warned(caplog) if "header too" not in one and "too long" not in one
    ] == []


@pytest.mark.slow
def test_own_and_named_hosts_and_pages_are_answered(server: DashboardServer) -> None:
    port, own = server.port, f"http://127.0.0.1:{server.port}"
    for host in (
        *("127.0.0.1", f"127.0.0.1:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "localhost:8080"),
        *("hub.example.org", "hub.example.org:443", "HUB.example.org:80", "lab.example.org:8000"),
    ):
        assert ask(server, "health", headers={"Host": host}).status == 200, host
        assert shake_hands(server, {"Host": host}) == 101, host
    for origin, site in (
        (own, "same-origin"),
        (f"http://localhost:{port}", "same-origin"),
        ("https://hub.example.org", "same-origin"),
        ("https://hub.example.org", "cross-site"),
        ("http://lab.example.org:8000", "same-site"),
    ):
        assert shake_hands(server, {"Origin": origin, "Sec-Fetch-Site": site}) == 101
    tunnel = {"Host": "localhost:9999", "Origin": "http://localhost:9999"}
    assert shake_hands(server, tunnel) == 101
    for site in ("cross-site", "same-site", "none"):
        assert ask(server, headers={"Sec-Fetch-Site": site, **VISIT}).status == 200


@pytest.mark.slow
def test_every_answer_carries_the_headers_that_protect_it(server: DashboardServer) -> None:
    protection = {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Server": None,
    }
    for path in (*PATHS, "export/trace.json", "favicon.ico"):
        headers = ask(server, path).headers
        assert {name: headers[name] for name in protection} == protection, path
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'"), path
        assert "frame-ancestors" in policy, path
    own = ask(server).headers["Content-Security-Policy"]
    assert own.endswith("frame-ancestors 'self' hub.example.org lab.example.org:8000")
    assert "'unsafe-inline'" not in own.partition("script-src")[2].partition(";")[0]
    for path in ("health", "metrics"):
        asked, given = ask(server, path, method="HEAD"), ask(server, path)
        assert (asked.status, asked.body) == (given.status, b"")


def test_each_page_has_its_own_nonce_and_session(
    server: DashboardServer, caplog: pytest.LogCaptureFixture
) -> None:
    seen = set()
    unsigned = "eyJzZXNzaW9uX2lkIjogIm1pbmUifQ"
    for query in ("", f"?bokeh-session-id=%0AERROR:root:forged&bokeh-token={unsigned}"):
        answer = ask(server, query, headers={"Bokeh-Session-Id": "mine"})
        assert answer.status == 200
        (nonce,) = re.findall("'nonce-([^']+)'", answer.headers["Content-Security-Policy"])
        inline = re.findall(rb"<script(?![^>]*(?:src=|json|esms))([^>]*)>", answer.body)
        assert len(inline) >= 3
        assert all(f'nonce="{nonce}"'.encode() in tag for tag in inline)
        (token,) = re.findall(rb'"token":"([^"]+)"', answer.body)
        session = json.loads(_unpacked(token.partition(b".")[0]))["session_id"]
        assert len(session) > 40
        assert "mine" not in session
        seen |= {nonce, session}
    assert len(seen) == 4
    assert warned(caplog) == []


def _unpacked(text: bytes) -> bytes:
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def test_without_the_token_nothing_of_the_run_is_given(guarded: DashboardServer) -> None:
    for path in ("", "health", "health?token=wrong", "?token=wrong", "export/run.html", "static/x"):
        answer = ask(guarded, path)
        assert answer.status == 401
        assert b"made-up" not in answer.body
    for header in ("Bearer wrong", "Basic YTpi", "Bearer", f"Bearer x{TOKEN}"):
        assert ask(guarded, "metrics", headers={"Authorization": header}).status == 401
    assert shake_hands(guarded, {}) == 401
    for header in (f"Bearer {TOKEN}", f"bearer  {TOKEN}"):
        assert ask(guarded, "metrics", headers={"Authorization": header}).status in {200, 503}
    body = ask(guarded, "?run=%22%3E%3Cb%3E&compare=a&compare=b").body  # the form keeps the run
    assert b'name="run" value="&quot;&gt;&lt;b&gt;"' in body
    assert all(b'name="compare" value="%s"' % run in body for run in (b"a", b"b"))


@pytest.mark.slow
def test_the_token_is_in_no_page_cookie_or_log(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Who imports Dask has its set-up of Tornado's loggers, which print nearly nothing.
    monkeypatch.setattr(logging.getLogger("tornado"), "propagate", True)
    made, second = (served(ended(whole_run(3)), token=TOKEN) for _ in range(2))
    with caplog.at_level("DEBUG"), caplog.at_level("DEBUG", logger="tornado"):
        given = ask(made, f"{RIGHT}&run=&unasked=1")
        cookie, _, kept = given.headers["Set-Cookie"].partition(";")
        assert "HttpOnly" in kept
        assert "SameSite=Lax" in kept
        later = ask(made, headers={"Cookie": cookie, "X-Secret": "a secret of a proxy"})
        assert ask(made, f"{RIGHT}&run=nothing").status == 404
        assert ask(made, "?run=nothing&token=a%20long%20guess").status == 401
        for stranger in ({"Host": "evil.test"}, {"Sec-Fetch-Site": "cross-site"}):
            assert ask(made, f"health{RIGHT}", headers=stranger).status == 403
    for answer in (given, later):
        assert answer.status == 200
        tokens = re.findall(rb'"token":"([^"]+)"', answer.body)
        inside = "".join(map(_inside, tokens))
        assert ('"run"' in inside) == (answer is given)
        shown = answer.body.decode() + inside
        secret = (TOKEN, cookie.partition("=")[2], "a secret of a proxy", "unasked", "token=")
        assert [one for one in secret if one in shown] == []
    assert "run=nothing" in caplog.text
    assert "403 GET /health" in caplog.text
    assert "a%20long" not in caplog.text
    other = ask(second, RIGHT).headers["Set-Cookie"].partition(";")[0]
    assert len({one.partition("=")[2] for one in (cookie, other)}) == 2
    name = cookie.partition("=")[0]
    swapped = {"Cookie": f"{name}={other.partition('=')[2]}"}
    assert ask(made, headers=swapped).status == 401


def _inside(token: bytes) -> str:
    """Returns the contents of a token of Bokeh's."""
    whole = _unpacked(token.partition(b".")[0])  # its signature follows
    packed = re.search(rb'"__bk__zlib_": "([^"]+)"', whole)
    assert packed
    return whole.decode() + zlib.decompress(_unpacked(packed[1])).decode()


def test_a_browser_is_asked_for_the_token_once(guarded: DashboardServer, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(guarded.url.partition("?")[0])
    for tried in ("wrong, wrong", TOKEN):
        assert "needs its token" in page.locator("h1").inner_text()
        page.fill("input[name=token]", tried)
        page.click("button")
    page.wait_for_selector("html[data-ready=true]")
    assert page.locator("[data-text=run]").first.inner_text() == "made-up"
    page.goto(guarded.url.partition("?")[0])  # the cookie is enough from here on
    page.wait_for_selector("html[data-ready=true]")
    context.close()


def test_a_view_token_lets_look_and_not_control(
    recorder: RingRecorder, served: Served, browser: Browser, tmp_path: Path
) -> None:
    ending = threading.Event()

    def train() -> None:
        for _ in dl.controlled(itertools.count(), name="fit"):
            if ending.wait(0.002):
                break

    with dl.record(tmp_path / "run", probe=False) as recording:
        made = served(recording, token=TOKEN, view_token="another token")
        thread = threading.Thread(target=train)
        thread.start()
        try:
            wait_until(lambda: any(loop.position > 3 for loop in loops()))
            (control,) = loops()
            views = [browser.new_context().new_page() for _ in range(3)]
            for page, url in zip(views, (made.url, made.view_url, made.view_url), strict=True):
                page.goto(url)
            views[0].wait_for_selector(".loops button")
            for page in views[1:]:  # of two pages each receives what both show
                note = page.get_by_text("fit is running. This page can look but not control.")
                note.wait_for()
                assert (
                    page.locator(".loops button, .capture button").locator("visible=true").count()
                    == 0
                )
                page.evaluate(
                    """(loop) => {
                      const pressed = {orders: 1, loop, order: "stop", captures: 1}
                      const view = Bokeh.documents[0].get_model_by_name("view")
                      view.data = {json: [JSON.stringify(pressed)]}
                    }""",
                    control.number,
                )
            views[2].reload()  # its cookie has the same rights
            views[2].get_by_text("This page can look but not control.").wait_for()
            views[0].click(".loops [data-order=pause]")
            wait_until(lambda: control.state == "paused", "the pause")
            for page in views[1:]:
                page.get_by_text("fit is paused. This page can look but not control.").wait_for()
            for page in views:
                page.context.close()
        finally:
            ending.set()
            control.resume()
            thread.join()
