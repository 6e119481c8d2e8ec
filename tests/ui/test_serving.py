"""A server's life: what it takes from its process, what it gives back, and how much at once."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError

import distlab as dl
from distlab.errors import InvalidArgumentError, NotARunError
from distlab.events import sink
from distlab_dashboard import DashboardServer, exports, listening, serve
from tests import own_process
from tests.synthetic import ListSource, whole_run
from tests.ui.asking import Answer, ask
from tests.ui.waiting import wait_until


def source() -> ListSource:
    made = ListSource(whole_run(30))
    made.live = False
    return made


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with dl.record(tmp_path / "first") as recording:
        recording.log(0, loss=1.0)
    return tmp_path / "first"


class SlowExports:
    """Holds up the making of files, and notes how many are made at once.

    Attributes:
      asked: how many were asked for.
    """

    def __init__(self, write: Callable[..., None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._now = 0
        self.asked = 0
        self.most = 0
        self.go_on = threading.Event()

    @property
    def busy(self) -> bool:
        return self._now > 0

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


def test_one_file_is_made_at_a_time_and_those_who_must_wait_too_long_are_told(
    recorded: Path, slow: SlowExports
) -> None:
    made = serve(recorded)
    try:
        with ThreadPoolExecutor(30) as pool:
            asked = [pool.submit(ask, made, "export/trace.json") for _ in range(30)]
            refused = 30 - 1 - exports.MOST_WAITING
            wait_until(lambda: sum(one.done() for one in asked) == refused, "refusals")
            early = [one.result() for one in asked if one.done()]
            slow.go_on.set()
            answers: list[Answer] = [one.result() for one in asked]
        assert {answer.status for answer in early} == {503}
        assert {answer.headers["Retry-After"] for answer in early} == {"5"}
        assert all(b"one file at a time" in answer.body for answer in early)
        assert sorted(answer.status for answer in answers) == [200] * 3 + [503] * refused
        assert slow.most == 1
        assert ask(made, "export/trace.json").status == 200
    finally:
        slow.go_on.set()
        made.stop()


def test_the_page_says_in_words_that_there_is_no_file(
    recorded: Path, slow: SlowExports, browser: Browser
) -> None:
    made = serve(recorded)
    page = browser.new_page()
    try:
        page.goto(made.url)
        page.wait_for_selector("html[data-ready=true]")
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask, made, "export/trace.json") for _ in range(3)]
            wait_until(lambda: slow.asked == 1 + exports.MOST_WAITING, "a full queue")
            words = page.locator(".saving")
            assert ask(made, "export/trace.json").status == 503
            page.click("[data-export='run.html']")
            words.get_by_text("Try again in 5 s").wait_for()
            slow.go_on.set()
            assert [one.result().status for one in asked] == [200] * 3
        with page.expect_download() as download:
            page.click("[data-export='run.html']")
        assert download.value.suggested_filename == "first-run.html"
        words.wait_for(state="hidden")
    finally:
        slow.go_on.set()
        page.close()
        made.stop()


def test_a_server_stops_quietly_while_files_are_made(
    recorded: Path, slow: SlowExports, caplog: pytest.LogCaptureFixture
) -> None:
    made = serve(recorded)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, made, "export/trace.json") for _ in range(3)]
        wait_until(lambda: slow.busy, "an export")
        made.stop()
        slow.go_on.set()
        for one in asked:
            failed = one.exception(30)
            assert isinstance(failed, OSError | HTTPException) or one.result().status == 503
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_file_asked_for_while_the_server_stops_is_refused(recorded: Path) -> None:
    made = serve(recorded)
    try:
        made._exports.stop()  # its turn comes before the sockets are closed
        answer = ask(made, "export/trace.json")
    finally:
        made.stop()
    assert (answer.status, b"was stopped before" in answer.body) == (503, True)


def is_ended(connection: socket.socket) -> bool:
    """Whether the server has closed a connection, once it has sent what it had to."""
    connection.settimeout(60)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nslow",
    ],
)
def test_connections_that_send_nothing_more_are_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.3)
    made = serve(source())
    try:
        with socket.create_connection(("127.0.0.1", made.port)) as connection:
            connection.sendall(sent)
            assert is_ended(connection)
    finally:
        made.stop()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux ends stalled readers")
def test_a_reader_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "STALL_SECONDS", 1.0)
    made = serve(source())
    try:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.connect(("127.0.0.1", made.port))
            connection.sendall(b"GET /static/js/bokeh.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            http = made._http
            assert http is not None
            wait_until(lambda: len(http._streams) == 1, "the request")
            (stream,) = http._streams
            wait_until(stream.closed, "the end of a stalled connection")
    finally:
        made.stop()


class SlowReader:
    """Asks for a file, with a small buffer, and reads no more than a test does.

    Attributes:
      connection: what the file comes by.
    """

    def __init__(self, server: DashboardServer, path: str = "export/trace.json") -> None:
        self.connection = socket.socket()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
        self.connection.settimeout(60)
        self.connection.connect(("127.0.0.1", server.port))
        self.connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def head(self) -> bytes:
        return self.connection.recv(12)


@contextmanager
def slow_reader(source: Path) -> Iterator[tuple[DashboardServer, SlowReader]]:
    """A server and a reader of a file, which is being sent."""
    made = serve(source)
    reader = SlowReader(made)
    try:
        assert reader.head() == b"HTTP/1.1 200"
        yield made, reader
    finally:
        reader.connection.close()
        made.stop()


@pytest.fixture
def long_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes files of 16 MB, more than the system takes at once."""

    def write(_: object, path: Path) -> None:
        path.write_bytes(bytes(16 << 20))

    monkeypatch.setattr(exports, "_write", write)


@pytest.mark.usefixtures("long_files")
def test_a_reader_of_a_file_that_stalls_is_given_up_without_a_word(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exports, "_SEND_SECONDS", 0.5)
    with slow_reader(recorded) as (made, reader):
        http = made._http
        assert http is not None
        wait_until(lambda: made._exports._at_once == 0, "the end of the sending")
        assert is_ended(reader.connection)
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.usefixtures("long_files")
def test_a_reader_of_a_file_that_is_slow_is_sent_it(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_SEND_SECONDS", 5.0)
    with slow_reader(recorded) as (made, reader):
        end = time.monotonic() + 8
        while time.monotonic() < end:  # some 100 KB/s
            assert made._exports._at_once == 1
            assert reader.connection.recv(2_000)
            threading.Event().wait(0.02)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux ends stalled readers")
@pytest.mark.usefixtures("long_files")
def test_the_system_ends_no_reader_whose_buffer_is_small_while_a_file_is_sent(
    recorded: Path,
) -> None:
    """It would after a minute, if no large packet ever fits."""
    with slow_reader(recorded) as (made, reader):
        http = made._http
        assert http is not None
        (stream,) = http._streams

        def stall_ms() -> int:
            return int(stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))

        wait_until(lambda: stall_ms() == 0, "the sending")
        left = 16 << 20
        while left > 0:
            more = reader.connection.recv(1 << 20)
            assert more
            left -= len(more)
        wait_until(lambda: stall_ms() == 60_000, "the limit of the next request")


@pytest.mark.usefixtures("long_files")
def test_few_files_are_sent_at_once(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MOST_AT_ONCE", 2)
    made = serve(recorded)
    readers: list[SlowReader] = []
    try:
        for _ in range(2):
            readers.append(SlowReader(made))
            assert readers[-1].head() == b"HTTP/1.1 200"
        answer = ask(made, "export/trace.json")
        assert answer.status == 503
        assert b"is sending 2 files" in answer.body
        assert answer.headers["Retry-After"] == "5"
        assert ask(made, "export/trace.json", method="HEAD").status == 200  # that makes none
        readers[0].connection.close()
        wait_until(lambda: made._exports._at_once < 2, "the end of a sending")
        assert ask(made, "export/trace.json").status == 200
    finally:
        for one in readers:
            one.connection.close()
        made.stop()


def test_a_flood_of_slow_connections_leaves_pages_and_files_alone(
    monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 12)
    made = serve(source())
    slow: list[socket.socket] = []
    try:
        http = made._http
        assert http is not None
        page = browser.new_page()
        page.goto(made.url)
        page.wait_for_selector("text=Overview")
        wait_until(lambda: len(http._asking) < len(http._streams), "the page's web socket")
        for _ in range(60):
            slow.append(socket.create_connection(("127.0.0.1", made.port)))
            slow[-1].sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert ask(made, "health").status == 200
        assert len(http._streams) <= 12
        assert is_ended(slow[0])
        web_sockets = [one for one in http._streams if one not in http._asking]
        assert [one.closed() for one in web_sockets] == [False] * len(web_sockets)
        assert web_sockets
        page.close()
    finally:
        for one in slow:
            one.close()
        made.stop()


def test_idle_connections_of_strangers_cut_off_no_download(
    recorded: Path, slow: SlowExports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 12)
    made = serve(recorded, token="a long token")
    strange: list[socket.socket] = []
    try:
        http = made._http
        assert http is not None
        path = "export/trace.json"
        bearer = {"Authorization": "Bearer a long token"}
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, made, path, headers=bearer)
            wait_until(lambda: slow.busy, "an export")
            for number in range(60):
                strange.append(socket.create_connection(("127.0.0.1", made.port)))
                if number % 2:  # these are refused, and stay connected
                    strange[-1].sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert ask(made, "health", headers=bearer).status == 200
            assert len(http._streams) <= 12
            slow.go_on.set()
            assert asked.result().status == 200
        wait_until(lambda: http._busy == set(), "the end of all answers")
    finally:
        slow.go_on.set()
        for one in strange:
            one.close()
        made.stop()


def test_a_connection_whose_answer_is_complete_is_closed_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 4)
    made = serve(source())
    opened: list[socket.socket] = []
    try:
        for _ in range(6):
            opened.append(socket.create_connection(("127.0.0.1", made.port)))
            opened[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert opened[-1].recv(12) == b"HTTP/1.1 200"
        assert is_ended(opened[0])
    finally:
        for one in opened:
            one.close()
        made.stop()


def test_connections_take_a_quarter_of_the_files_that_may_be_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for allowed, most in ((1_024, 256), (20_000, 512), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, n=allowed: (n, n))
        assert listening._most_connections() == most


def test_too_much_of_a_request_is_refused() -> None:
    made = serve(source())
    try:
        for headers in ({"X-Long": "x" * 100_000}, {"Content-Length": "1000000000"}):
            assert ask(made, "health", headers=headers).status in {400, 413, 431}
    except ConnectionError:
        pass  # the server need not answer it
    finally:
        made.stop()


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
    for _ in range(3):
        cycle(shown)
    before = held()
    for _ in range(12):
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


_TAKEN = """
import os
from distlab.errors import PortInUseError
from distlab_dashboard import serve
from tests.synthetic import ListSource, whole_run

source = ListSource(whole_run(3))
server = serve(source, port=0)
before = set(os.listdir("/proc/self/fd"))
for _ in range(5):
    try:
        serve(source, port=server.port)
    except PortInUseError:
        continue
    raise AssertionError("two servers on one port")
print("left", len(set(os.listdir("/proc/self/fd")) - before))
server.stop()
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files as Linux does")
def test_a_server_that_finds_its_port_taken_leaves_no_file_open() -> None:
    done = own_process.run(_TAKEN)
    assert done.stdout == "left 0\n", done.stderr


_FORKING = """
import os, socket
from distlab_dashboard import serve
from tests.synthetic import ListSource, whole_run

source = ListSource(whole_run(3))
source.live = False
server = serve(source, port=0)
client = socket.create_connection(("127.0.0.1", server.port))
client.sendall(b"GET /health HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
assert client.recv(12) == b"HTTP/1.1 200"
go_on, done = os.pipe()
child = os.fork()
if child == 0:
    os.close(done)
    os.read(go_on, 1)  # lives on until its parent has made sure
    os._exit(0)
# The parent goes on serving as before.
client.sendall(b"GET /health HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
received = b""
while b"HTTP/1.1 200" not in received:
    received += client.recv(4096)
port = server.port
server.stop()
client.settimeout(30)
while client.recv(65536):  # ends: the child has no copy of the connection
    pass
again = serve(source, port=port)
print("free", again.port == port)
again.stop()
os.write(done, b"x")
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork on POSIX only")
def test_a_forked_child_lets_the_port_and_the_connections_go() -> None:
    done = own_process.run(_FORKING, seconds=120)
    assert done.stdout == "free True\n", done.stderr


def test_a_server_that_stops_while_a_page_is_used_writes_nothing(
    browser: Browser, recorded: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        server = serve(recorded)
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("html[data-ready=true]")
        for name in ("batches", "steps", "devices"):
            page.click(f'nav a[data-page="{name}"]')
        server.stop()
        page.close()
    assert [one for one in caplog.records if one.exc_info or one.levelno >= logging.WARNING] == []


def test_a_file_that_a_full_disk_does_not_take_is_told_in_words(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("distlab_dashboard.exports.report.write", full)
    server = serve(recorded)
    try:
        answer = ask(server, "export/run.html", headers={"Sec-Fetch-Site": "same-origin"})
    finally:
        server.stop()
    assert answer.status == 507
    assert b"The file can't be made: No space left on device" in answer.body
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_a_second_stop_has_no_effect(recorded: Path) -> None:
    made: DashboardServer = serve(recorded)
    made.stop()
    made.stop()
    with pytest.raises(OSError, match="refused"):
        ask(made)


@pytest.mark.parametrize("error", [WebSocketClosedError(), StreamClosedError(), OSError("a fault")])
def test_a_message_to_a_reader_who_has_gone_is_worth_no_line_and_other_faults_are(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    made = serve(ListSource(whole_run(30)), port=0)
    loop = made._loop
    assert loop is not None
    done = threading.Event()

    async def fail() -> None:
        raise error

    async def send_without_waiting() -> None:
        task = asyncio.ensure_future(fail())
        await asyncio.wait([task])
        del task
        gc.collect()
        done.set()

    try:
        loop.add_callback(send_without_waiting)
        assert done.wait(60)
    finally:
        made.stop()
    told = [one.exc_info[1] for one in caplog.records if one.exc_info is not None]
    assert told == ([error] if type(error) is OSError else [])


def test_a_recording_that_stores_nothing_says_why_it_has_no_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        dl.record(None) as recording,
        pytest.raises(InvalidArgumentError, match=r"'in memory' keeps .* memory only\. Name one: "),
    ):
        serve(recording, port=0)
    monkeypatch.setattr(sink, "_recorder", sink.NULL)
    with (
        dl.record("run") as recording,
        pytest.raises(InvalidArgumentError, match=r"'run' stores .*\(DISTLAB_RECORD=off\)\. Unset"),
    ):
        serve(recording, port=0)


def test_an_empty_path_is_no_folder_to_serve() -> None:
    with pytest.raises(NotARunError, match="opened by its folder, got a str: ''"):
        serve("", port=0)
