"""The sockets of the server: opened here, closed in forked children, ended when they stall."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, Final

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerConnectionDelegate, HTTPServerRequest
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets

from distlab.runs.opening import most_open_files

IDLE_SECONDS: Final = 30.0
"""How long a connection may take to send a request, and wait between two of them."""

STALL_SECONDS: Final = 60.0
"""How long a reader may take nothing of what is sent to it."""

MOST_CONNECTIONS: Final = 512
"""More are not held at once; nor more than a quarter of the files that the process may open."""

_MOST_HEADER: Final = 32 << 10
_MOST_BODY: Final = 64 << 10


class WebServer(HTTPServer):
    """An HTTP server that gives up on idle and stalled connections, and on forks of its process.

    It leaves most of the files that the process may open to the program that trains. Of too many
    connections it closes the oldest one that waits for a request, or else the oldest one that is no
    web socket. So idle connections of strangers cut off no download.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._busy: set[IOStream] = set()
        self._listening: list[socket.socket] = []
        self._streams: set[IOStream] = set()
        self._asking: dict[IOStream, None] = {}  # those that are no web sockets, the oldest first

    def listen_on(self, sockets: Sequence[socket.socket]) -> None:
        """Begins to accept connections."""
        self._listening.extend(sockets)
        _running.add(self)
        self.add_sockets(sockets)

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Answers a connection; tornado calls it."""
        self._streams = {one for one in self._streams if not one.closed()}
        if len(self._streams) >= _most_connections():
            open_ones = [one for one in self._asking if not one.closed()]
            waiting = (one for one in open_ones if one not in self._busy)
            oldest = next(waiting, open_ones[0] if open_ones else stream)
            self._streams.discard(oldest)
            oldest.close()
            if oldest is stream:
                return
        self._streams.add(stream)
        self._asking[stream] = None
        super().handle_stream(stream, address)

    def start_request(self, server_conn: Any, request_conn: Any) -> HTTPMessageDelegate:
        """Waits for a request, the last one having been answered; tornado calls it."""
        self._busy.discard(server_conn.stream)
        return super().start_request(server_conn, request_conn)

    def note_answer(self, request: HTTPServerRequest) -> None:
        """Keeps the connection of an answered request from being closed for others."""
        connection: Any = request.server_connection
        self._busy.add(connection.stream)

    def on_close(self, server_conn: Any) -> None:
        """Notes that a connection has ended, or became a web socket; tornado calls it."""
        self._busy.discard(server_conn.stream)
        self._asking.pop(server_conn.stream, None)
        super().on_close(server_conn)

    def stop(self) -> None:
        """Stops accepting connections."""
        _running.discard(self)
        super().stop()

    def hang_up(self) -> None:
        """Closes all connections, web sockets included."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def let_go(self) -> None:
        """Closes this process's copies of all sockets, in a child that forked.

        The loop that watches them is the parent's as well, and must not learn of it.
        """
        for own in (*self._listening, *(stream.socket for stream in self._streams)):
            if own is not None:  # a stream that was closed
                own.close()


def web_server(delegate: HTTPServerConnectionDelegate) -> WebServer:
    """Returns a server with limits."""
    return WebServer(
        delegate,
        idle_connection_timeout=IDLE_SECONDS,
        body_timeout=IDLE_SECONDS,
        max_header_size=_MOST_HEADER,
        max_body_size=_MOST_BODY,
    )


_running: Final[set[WebServer]] = set()


def open_sockets(address: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen on an address of this machine."""
    sockets = bind_sockets(port, address=address)
    for one in sockets:
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it; Linux only
            stall_ms = round(1_000 * STALL_SECONDS)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)
    return sockets


def _most_connections() -> int:
    return min(MOST_CONNECTIONS, most_open_files() // 4)


def _let_go() -> None:
    for server in tuple(_running):
        server.let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
