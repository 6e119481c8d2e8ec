"""A server's life: what it takes from its process, what it gives back, and how much at once."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import distlab as dl
from distlab.errors import InvalidArgumentError
from distlab.events import sink
from distlab_dashboard import exports, serve
from distlab_dashboard.access import connections
from tests import own_process
from tests.patience import wait_until
from tests.synthetic import whole_run
from tests.ui.asking import ask
from tests.ui.conftest import Served, ended


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with dl.record(tmp_path / "first") as recording:
        recording.log(0, loss=1.0)
    return tmp_path / "first"


class SlowExports:
    """Holds up the making of files, and notes how many are made at once."""

    def __init__(self, write: Callable[..., None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._now = 0
        self.asked = 0
        self.most = 0
        self.go_on = threading.Event()

    def __call__(self, *given: object) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self.go_on.wait(60)
        self._write(*given)
        with self._lock:
            self._now -= 1


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowExports]:
    made = SlowExports(exports._write)
    make = exports.Exports.make

    def counted(*given: Any) -> Any:
        made.asked += 1
        return make(*given)

    monkeypatch.setattr(exports.Exports, "make", counted)
    monkeypatch.setattr(exports, "_write", made)
    yield made
    made.go_on.set()


def test_few_files_are_made_and_sent_at_once(
    recorded: Path, slow: SlowExports, browser: Browser
) -> None:
    made = serve(recorded)
    page = browser.new_page()
    try:
        page.goto(made.url)
        page.wait_for_selector("html[data-ready=true]")
        with ThreadPoolExecutor(exports.MOST_AT_ONCE) as pool:
            asked = [
                pool.submit(ask, made, "export/trace.json") for _ in range(exports.MOST_AT_ONCE)
            ]
            wait_until(lambda: slow.asked == exports.MOST_AT_ONCE, "all places to be taken")
            refused = ask(made, "export/trace.json")
            assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
            assert b"one file at a time" in refused.body
            page.click("[data-export='run.html']")
            words = page.locator(".saving")
            words.get_by_text("Try again in 5 s").wait_for()
            slow.go_on.set()
            assert {one.result().status for one in asked} == {200}
        assert slow.most == 1
        with page.expect_download() as download:
            page.click("[data-export='run.html']")
        assert download.value.suggested_filename == "first-run.html"
        words.wait_for(state="hidden")
    finally:
        slow.go_on.set()
        page.close()
        made.stop()


def is_ended(connection: socket.socket) -> bool:
    """Returns whether the server has closed a connection, after all that it sends."""
    connection.settimeout(60)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_connections_are_few_and_end_when_they_are_idle(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    made = served(ended(whole_run(3)))
    health = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    idle = (b"", health + b"X-Slow: ", health + b"\r\n", health + b"Content-Length: 9\r\n\r\nslow")
    with ExitStack() as opened:
        address = ("127.0.0.1", made.port)
        idlers = [opened.enter_context(socket.create_connection(address)) for _ in idle]
        for connection, sent in zip(idlers, idle, strict=True):
            connection.sendall(sent)
        wait_until(lambda: made._http is not None and len(made._http._streams) == 4, "connections")
        with socket.create_connection(address) as refused:
            assert is_ended(refused)
        assert all(map(is_ended, idlers))
        assert ask(made, "health").status == 200


def test_a_reader_of_a_file_that_stalls_is_given_up(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    long = bytes(16 << 20)  # more than the system takes at once
    monkeypatch.setattr(exports, "_write", lambda _, path: path.write_bytes(long))
    monkeypatch.setattr(exports, "_SEND_SECONDS", 0.5)
    made = serve(recorded)
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        reader.settimeout(60)
        reader.connect(("127.0.0.1", made.port))
        reader.sendall(b"GET /export/trace.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            assert reader.recv(12) == b"HTTP/1.1 200"
            wait_until(lambda: made._exports._at_once == 0, "the end of the sending")
            assert is_ended(reader)
        finally:
            made.stop()
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


_CYCLES = """
import gc, os, socket, sys, threading, time
from pathlib import Path
from bokeh.server.tornado import BokehTornado
from distlab_dashboard import serve
from distlab_dashboard.session import Session
from tests.ui.asking import ask

def cycle(shown):
    made = serve(shown)
    assert ask(made).status == 200
    with socket.create_connection(("127.0.0.1", made.port)) as idle:
        idle.sendall(b"GET / HTTP/1.1\\r\\n")
        made.stop()

def held():
    gc.collect()
    servers = sum(isinstance(one, BokehTornado | Session) for one in gc.get_objects())
    return len(os.listdir("/proc/self/fd")), threading.active_count(), servers

recorded = Path(sys.argv[1])
for shown in (recorded, recorded.parent):
    cycle(shown)
    before = held()
    for _ in range(2):
        cycle(shown)
    end = time.monotonic() + 60
    while any(now > then for now, then in zip(held(), before)):
        assert time.monotonic() < end, f"files, threads and servers: {before}, then {held()}"
        time.sleep(0.1)
    print("left nothing")
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files as Linux does")
def test_a_stopped_server_leaves_nothing_behind(recorded: Path) -> None:
    """In its own process: files and threads of other tests come and go meanwhile."""
    done = own_process.run(_CYCLES, recorded)
    assert done.stdout == "left nothing\n" * 2, done.stderr


def test_a_server_that_stops_while_a_page_is_used_is_quiet(
    browser: Browser, recorded: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(recorded)
    page = browser.new_page()
    page.goto(server.url)
    page.wait_for_selector("html[data-ready=true]")
    for name in ("batches", "steps", "devices"):
        page.click(f'nav a[data-page="{name}"]')
    server.stop()
    page.close()
    assert [one for one in caplog.records if one.exc_info or one.levelno >= logging.WARNING] == []


def test_a_recording_that_stores_nothing_says_why_it_has_no_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        dl.record(None) as recording,
        pytest.raises(InvalidArgumentError, match=r"'in memory' keeps .* memory only\. Name one: "),
    ):
        serve(recording, port=0)
    monkeypatch.setattr(sink, "in_force", sink.NULL)
    with (
        dl.record("run") as recording,
        pytest.raises(InvalidArgumentError, match=r"'run' stores .*\(DISTLAB_RECORD=off\)\. Unset"),
    ):
        serve(recording, port=0)
