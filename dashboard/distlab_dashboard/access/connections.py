"""The web server below the gate: a cap on open connections, and time limits of idle ones."""

from __future__ import annotations

from typing import Any, Final

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

from distlab.runs.opening import most_open_files

IDLE_SECONDS: Final = 30.0
"""The longest time that a connection may take to send a request, or wait between two of them."""

MOST_CONNECTIONS: Final = 512
"""More are refused; and more than a quarter of the files that the process may open."""

_MOST_HEADER: Final = 32 << 10
_MOST_BODY: Final = 64 << 10


class WebServer(HTTPServer):
    """An HTTP server that leaves most of the process's files to the program that trains."""

    # tornado's servers get what they need here: their constructor only makes them.
    def initialize(self, *args: Any, **options: Any) -> None:
        """Sets the limits; tornado calls it."""
        self._streams: set[IOStream] = set()
        options |= {
            "idle_connection_timeout": IDLE_SECONDS,
            "body_timeout": IDLE_SECONDS,
            "max_header_size": _MOST_HEADER,
            "max_body_size": _MOST_BODY,
        }
        super().initialize(*args, **options)

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Answers a connection; tornado calls it."""
        self._streams = {one for one in self._streams if not one.closed()}
        if len(self._streams) >= min(MOST_CONNECTIONS, most_open_files() // 4):
            stream.close()
            return
        self._streams.add(stream)
        super().handle_stream(stream, address)

    def hang_up(self) -> None:
        """Closes all connections, web sockets included."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
