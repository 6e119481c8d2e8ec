"""Frames of a web socket that complete no message: a browser sends few of them."""

from __future__ import annotations

import re
import socket

import pytest
from tornado.websocket import WebSocketProtocol13

from distlab_dashboard import DashboardServer, page_socket
from distlab_dashboard.page_socket import MOST_FRAMES, PageSocket
from distlab_dashboard.tornado_internals import TellingProtocol
from tests.ui.asking import HANDSHAKE, ask
from tests.ui.viewer import in_a_loop, viewing

TEXT, PING, PONG = 0x81, 0x89, 0x8A
BEGUN, GOES_ON = 0x01, 0x00
REFUSED = bytes([0x88, 2 + len("not a message of a page")]) + (1008).to_bytes(2) + b"not a message"


def frame(kind: int, content: bytes = b"") -> bytes:
    """A frame as browsers send it, with a mask that changes nothing."""
    return bytes([kind, 0x80 | len(content)]) + bytes(4) + content


FLOODS = {
    "pings": frame(PING),
    "pongs": frame(PONG),
    "fragments": frame(GOES_ON),
    "pings in a message": frame(GOES_ON) + frame(PING),
}


class Socket:
    """A page's web socket that sends any bytes."""

    def __init__(self, server: DashboardServer) -> None:
        token = re.search(rb'"token":"([^"]+)"', ask(server).body)
        assert token is not None
        protocol = f"bokeh, {token[1].decode()}"
        headers = {**HANDSHAKE, "Host": "localhost", "Sec-WebSocket-Protocol": protocol}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        self.connection.sendall(f"GET /ws HTTP/1.1\r\n{lines}\r\n".encode())
        self.said = b""
        self.read_until(b'"ACK"')

    def read_until(self, part: bytes) -> None:
        """Reads until the server has said something."""
        while part not in self.said:
            more = self.connection.recv(65_536)
            assert more, f"closed after {self.said[-200:]!r}"
            self.said += more

    def flood(self, sent: bytes) -> None:
        """Sends this until the connection is ended."""
        while True:
            self.connection.sendall(sent * 10_000)


@pytest.mark.parametrize("kind", FLOODS)
def test_who_sends_frames_without_end_is_disconnected(server: DashboardServer, kind: str) -> None:
    opened = Socket(server)
    with opened.connection as connection:
        connection.sendall(frame(BEGUN, b"{"))  # fragments go on with it
        connection.sendall(FLOODS[kind] * (MOST_FRAMES + 1))
        opened.read_until(REFUSED)


@pytest.mark.parametrize(
    ("sent", "parts"), [(frame(PONG), 0), (frame(TEXT, b"{}"), 3)], ids=["pongs", "messages"]
)
def test_little_more_is_read_of_who_was_refused(
    server: DashboardServer, monkeypatch: pytest.MonkeyPatch, sent: bytes, parts: int
) -> None:
    read: list[object] = []
    note = PageSocket.on_frame

    async def noted(opened: PageSocket) -> None:
        read.append(opened)
        await note(opened)

    monkeypatch.setattr(PageSocket, "on_frame", noted)
    opened = Socket(server)
    with opened.connection, pytest.raises(OSError, match=r"reset|Broken pipe"):
        opened.flood(sent)
    assert len(read) == parts + MOST_FRAMES + 1


def test_few_frames_cost_nothing_and_more_may_come_later(
    server: DashboardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Socket(server)
    with opened.connection as connection:
        for round_ in range(3):
            few = MOST_FRAMES // 2
            connection.sendall(frame(PONG) * few + frame(PING, f"last {round_}".encode()))
            opened.read_until(f"last {round_}".encode())
            monkeypatch.setattr(page_socket, "FRAMES_SECONDS", 0.0)
        assert REFUSED not in opened.said


def test_messages_are_not_counted(server: DashboardServer) -> None:
    async def attempt() -> None:
        async with viewing(server) as viewer:
            for _ in range(MOST_FRAMES):
                await viewer.patch()  # three frames each

    in_a_loop(attempt)


def test_tornado_reads_frames_one_by_one_and_calls_for_each() -> None:
    """What `tornado_internals` relies on."""
    own = vars(WebSocketProtocol13)["_receive_frame"]
    assert own is not vars(TellingProtocol)["_receive_frame"]
    assert "_receive_frame" in WebSocketProtocol13._receive_frame_loop.__code__.co_names
