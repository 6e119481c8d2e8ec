"""Requests to a dashboard that no browser would send."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from http.client import HTTPMessage
from urllib.parse import urlsplit

from distlab_dashboard import DashboardServer

LIMIT_SECONDS = 60
HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "bokeh, nothing",
}


@dataclass
class Answer:
    """An answer of a server."""

    status: int
    headers: HTTPMessage
    body: bytes


def ask(
    server: DashboardServer,
    path: str = "",
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    whole: bool = True,
) -> Answer:
    """Asks for a path below the page's address, with any headers."""
    at = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(at.hostname), server.port, timeout=LIMIT_SECONDS)
    try:
        connection.request(method, at.path + path, headers=headers or {})
        response = connection.getresponse()
        body = response.read() if whole else b""
        return Answer(response.status, response.headers, body)
    finally:
        connection.close()


def shake_hands(server: DashboardServer, headers: dict[str, str]) -> int:
    """Returns the status of the page's web socket, asked for with further headers."""
    return ask(server, "ws", headers={**HANDSHAKE, **headers}, whole=False).status
