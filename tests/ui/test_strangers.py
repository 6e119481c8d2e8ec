"""What the server answers to strangers: requests under other names, and from other sites."""

from __future__ import annotations

import json
import logging
import re
import socket
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Iterator

import pytest

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab_dashboard import DashboardServer, serve
from tests.synthetic import ListSource, whole_run
from tests.ui.asking import ask, shake_hands

PATHS = ("", "health", "export/run.html", "static/js/bokeh.min.js", "nothing")
TOKEN = "a long token & more"
SITES = (None, "same-origin", "cross-site")


def source() -> ListSource:
    made = ListSource(whole_run(30))
    made.live = False
    return made


@pytest.fixture(scope="module", params=["", "behind/a/proxy"])
def server(request: pytest.FixtureRequest) -> Iterator[DashboardServer]:
    made = serve(
        source(), prefix=request.param, origins=("hub.example.org", "lab.example.org:8000")
    )
    yield made
    made.stop()


def test_only_known_hosts_are_answered(server: DashboardServer) -> None:
    port = server.port
    for host in (
        *("127.0.0.1", f"127.0.0.1:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "localhost:8080"),
        *("hub.example.org", "hub.example.org:443", "HUB.example.org:80", "lab.example.org:8000"),
    ):
        assert ask(server, "health", headers={"Host": host}).status == 200, host
        assert shake_hands(server, {"Host": host}) == 101, host


@pytest.mark.parametrize(
    "host",
    [
        *("evil.test", "evil.test:{port}", "127.0.0.1.evil.test:{port}", "localhost.evil.test"),
        *("192.0.2.7:{port}", "[2001:db8::1]:{port}", "0.0.0.0:{port}", "foo.localhost:{port}"),
        *("hub.example.org:8000", "lab.example.org", "www.hub.example.org", "hub.example.org."),
        *(
            "127.0.0.1:{port}@evil.test",
            "evil.test/127.0.0.1",
            "127.0.0.1 evil.test",
            "",
            ":{port}",
        ),
        *("127.0.0.1,evil.test", "[::1", "localhost:", "localhost:{port}:1", "xn--evil-\u00fc"),
    ],
)
@pytest.mark.parametrize("site", SITES)
def test_under_other_names_nothing_is_answered(
    server: DashboardServer, host: str, site: str | None
) -> None:
    """What the page of another site sends that has given its name this server's address."""
    name = host.format(port=server.port).encode().decode("latin-1")
    headers = {"Host": name} | ({"Sec-Fetch-Site": site} if site else {})
    for path in PATHS:
        answer = ask(server, path, headers=headers)
        assert answer.status in {400, 403}
        assert b"made-up" not in answer.body
        assert b"<script" not in answer.body
    assert shake_hands(server, headers) in {400, 403}
    assert shake_hands(server, {**headers, "Origin": f"http://{name}"}) in {400, 403}


def test_two_hosts_or_none_are_not_answered(server: DashboardServer) -> None:
    for lines in (b"", b"Host: 127.0.0.1\r\nHost: evil.test\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\n" + lines + b"Connection: close\r\n\r\n")
            connection.settimeout(30)
            said = b""
            while part := connection.recv(4_096):
                said += part
        assert b"HTTP/1.1 200" not in said


def test_a_server_for_others_answers_under_its_addresses_and_own_name() -> None:
    made = serve(source(), address="0.0.0.0", token=TOKEN)
    try:
        own = socket.gethostname()
        for host in ("192.0.2.7", f"[2001:db8::1]:{made.port}", own, f"{own}.local:1", "localhost"):
            assert ask(made, "health", headers={"Host": host}).status == 401, host
        for host in ("evil.test", "192.0.2.7.evil.test"):
            assert ask(made, "health", headers={"Host": host}).status == 403, host
        # A site may stand behind an address as well: it is not this server's for that.
        strange = f"http://192.0.2.9:{made.port}"
        assert shake_hands(made, {"Host": f"192.0.2.7:{made.port}", "Origin": strange}) == 403
    finally:
        made.stop()


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.test", "http://evil.test:{port}", "null", "http://127.0.0.1:1", "", "x"),
        *("https://hub.example.org.evil.test", "http://lab.example.org", "http://[", "file://"),
    ],
)
def test_pages_of_other_sites_get_nothing_whatever_else_they_send(
    server: DashboardServer, origin: str, site: str | None
) -> None:
    headers = {"Origin": origin.format(port=server.port)} | (
        {"Sec-Fetch-Site": site} if site else {}
    )
    assert shake_hands(server, headers) == 403
    for path in PATHS:
        answer = ask(server, path, headers=headers)
        assert answer.status == 403
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_own_pages_and_those_of_named_hosts_connect(server: DashboardServer) -> None:
    own = f"http://127.0.0.1:{server.port}"
    for origin, site in (
        (own, "same-origin"),
        (f"http://localhost:{server.port}", "same-origin"),
        ("https://hub.example.org", "same-origin"),
        ("https://hub.example.org", "cross-site"),
        ("http://lab.example.org:8000", "same-site"),
    ):
        assert shake_hands(server, {"Origin": origin, "Sec-Fetch-Site": site}) == 101
    tunnel = {"Host": "localhost:9999", "Origin": "http://localhost:9999"}
    assert shake_hands(server, tunnel) == 101


@pytest.mark.parametrize("site", ["none", "cross-site", "same-origin"])
@pytest.mark.parametrize(
    "purpose", ["prefetch", "prefetch;prerender", "prefetch;anonymous-client-ip"]
)
def test_nothing_is_answered_that_nobody_has_opened_yet(
    server: DashboardServer, site: str, purpose: str
) -> None:
    """Rules for speculation of any site have Chromium ask so, as if somebody typed the address."""
    visit = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in PATHS:
        assert ask(server, path, headers={**visit, "Sec-Purpose": purpose}).status == 403
        assert ask(server, path, headers={**visit, "Purpose": "prefetch"}).status == 403
    assert ask(server, headers=visit).status == 200


@pytest.mark.parametrize("path", ["export/run.html", "health", "ws", "static/js/bokeh.min.js"])
def test_links_and_frames_of_other_sites_reach_the_page_only(
    server: DashboardServer, path: str
) -> None:
    visit = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for site in ("cross-site", "same-site"):
        assert ask(server, headers={"Sec-Fetch-Site": site, **visit}).status == 200
        assert ask(server, path, headers={"Sec-Fetch-Site": site, **visit}).status == 403
        embedded = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        for one in ("", path):
            assert ask(server, one, headers={"Sec-Fetch-Site": site, **embedded}).status == 403


def test_a_download_that_another_site_links_to_is_refused_without_those_headers(
    server: DashboardServer,
) -> None:
    for referer, status in (
        ("http://evil.test/page", 403),
        (f"http://127.0.0.1:{server.port}/", 200),
        ("https://hub.example.org/user/someone/", 200),
    ):
        assert ask(server, "export/run.html", headers={"Referer": referer}).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_the_server_is_only_read_from(server: DashboardServer, method: str) -> None:
    for path in ("", "export/run.html", "health"):
        assert ask(server, path, method=method).status == 405


@pytest.mark.parametrize("kind", ["multipart/form-data", "application/x-www-form-urlencoded"])
def test_a_body_of_another_site_is_not_read_and_worth_no_line(
    server: DashboardServer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Content-Type": kind, "Content-Encoding": "none", "Content-Length": "0"}
    sent = {**headers, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert ask(server, method="POST", headers=sent).status == 403
    assert ask(server, "health", headers=headers).status == 200
    assert _warned(caplog) == []


@pytest.mark.parametrize(
    "path", ["autoload.js?bokeh-autoload-element=x", "metadata", "../etc", "x"]
)
def test_what_the_page_does_not_need_is_not_there(server: DashboardServer, path: str) -> None:
    assert ask(server, path).status == 404


OWN_SESSIONS = [
    "?bokeh-session-id=mine",
    "?bokeh-session-id=%0AERROR:root:forged",
    "?bokeh-token=abc",
    "?bokeh-token=e30",
    "?bokeh-token=eyJzZXNzaW9uX2lkIjogIm1pbmUifQ&bokeh-session-id=mine",
]


@pytest.mark.parametrize("query", OWN_SESSIONS)
def test_no_address_chooses_the_session_of_a_page(
    server: DashboardServer, query: str, caplog: pytest.LogCaptureFixture
) -> None:
    for headers in ({}, {"Bokeh-Session-Id": "mine"}):
        answer = ask(server, query, headers=headers)
        assert answer.status == 200
        (token,) = re.findall(rb'"token":"([^"]+)"', answer.body)
        session = json.loads(_unpacked(token.partition(b".")[0]))["session_id"]
        assert len(session) > 40
        assert "mine" not in session
    assert _warned(caplog) == []


@pytest.mark.parametrize(
    "path",
    [
        "static/../../../etc/passwd",
        "static/%2e%2e/%2e%2e/etc/passwd",
        "static//etc/passwd",
        "static/extensions/panel/..%2F..%2Fsetup.py",
        "static/js/../js/bokeh.min.js",
        "static/",
        "static/js",
        "static/js/lib",
        "static/js/nothing.js",
        "static/extensions/nothing/x.js",
        "static/js/bokeh.min.js/",
        "static/js/%ff.js",
        "static/extensions/%c3%28/x.js",
    ],
)
def test_no_path_leaves_the_files_of_the_page_or_fills_the_log(
    server: DashboardServer, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert ask(server, path).status == 404
    assert _warned(caplog) == []


def test_every_answer_carries_the_headers_that_protect_it(server: DashboardServer) -> None:
    for path in (*PATHS, "export/trace.json", "favicon.ico"):
        headers = ask(server, path).headers
        assert headers["X-Content-Type-Options"] == "nosniff", path
        assert headers["Referrer-Policy"] == "same-origin", path
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin", path
        assert headers["Server"] is None, path
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'"), path
        assert "frame-ancestors" in policy, path
    own = ask(server).headers["Content-Security-Policy"]
    assert "frame-ancestors 'self' hub.example.org lab.example.org:8000" in own
    assert "'unsafe-inline'" not in own.partition("script-src")[2].partition(";")[0]


def test_each_page_has_a_nonce_of_its_own(server: DashboardServer) -> None:
    nonces = set()
    for _ in range(3):
        answer = ask(server)
        (nonce,) = re.findall("'nonce-([^']+)'", answer.headers["Content-Security-Policy"])
        inline = re.findall(rb"<script(?![^>]*(?:src=|json|esms))([^>]*)>", answer.body)
        assert len(inline) >= 3
        assert all(f'nonce="{nonce}"'.encode() in tag for tag in inline)
        nonces.add(nonce)
    assert len(nonces) == 3


def test_the_page_tells_nothing_of_the_request_that_opened_it() -> None:
    made = serve(source(), token=TOKEN)
    try:
        given = ask(made, "?token=a%20long%20token%20%26%20more&run=&unasked=1")
        cookie = given.headers["Set-Cookie"].partition(";")[0]
        secret = {TOKEN, cookie.partition("=")[2], "a secret of a proxy"}
        for answer in (
            given,
            ask(made, headers={"Cookie": cookie, "X-Secret": "a secret of a proxy"}),
        ):
            assert answer.status == 200
            tokens = re.findall(rb'"token":"([^"]+)"', answer.body)
            assert tokens
            inside = "".join(_inside(token) for token in tokens)
            told = answer.body.decode() + inside
            assert ('"run"' in inside) == (answer is given)
            assert "unasked" not in told
            assert [one for one in secret if one in told] == []
            assert "token=" not in told
    finally:
        made.stop()


def _warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def _inside(token: bytes) -> str:
    """What a token of Bokeh's tells whoever unpacks it."""

    whole = _unpacked(token.partition(b".")[0])  # its signature follows
    packed = re.search(rb'"__bk__zlib_": "([^"]+)"', whole)
    assert packed
    return whole.decode() + zlib.decompress(_unpacked(packed[1])).decode()


def _unpacked(text: bytes) -> bytes:
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))


@pytest.mark.parametrize(
    "origin",
    [
        *("https://hub.example.org", "hub.example.org/", "*", "*.example.org", "", " ", "a b"),
        *("hub.example.org:http", "hub.example.org:99999", "user@hub.example.org", "a\r\nb"),
    ],
)
def test_what_is_no_host_is_refused_as_an_origin(origin: str) -> None:
    with pytest.raises(ArgumentValueError, match="An origin is the host"):
        serve(source(), origins=(origin,))


@pytest.mark.parametrize("origins", ["hub.example.org", (b"hub.example.org",), 3, None])
def test_origins_are_a_sequence_of_texts(origins: object) -> None:
    with pytest.raises(ArgumentTypeError, match="origins is a sequence"):
        serve(source(), origins=origins)  # type: ignore[arg-type]
