"""A viewer without a browser: a session's web socket, as a script would use it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from distlab_dashboard import DashboardServer
from tests.ui.asking import ask

LIMIT_SECONDS = 60


class Viewer:
    """A session's web socket, without a browser."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket
        self._sent = 0
        self._ended = False

    async def send(self, kind: str, content: object, **header: object) -> str:
        """Sends a message, and returns its number."""
        self._sent += 1
        number = f"m{self._sent}"
        for part in ({"msgid": number, "msgtype": kind, **header}, {}, content):
            await self.socket.write_message(json.dumps(part))
        return number

    async def answer(self, number: str) -> Any:
        """Returns the content of the answer to a message."""
        while True:
            header, _, content = [json.loads(await self._part()) for _ in range(3)]
            for _ in range(2 * header.get("num_buffers", 0)):
                await self._part()
            if header.get("reqid") == number:
                return content

    async def patch(self, *events: object) -> Any:
        """Sends a patch of the document, and returns the answer."""
        return await self.answer(await self.send("PATCH-DOC", {"events": events}))

    async def document(self) -> dict[str, Any]:
        """Returns the document that the server holds for this session."""
        found = (await self.answer(await self.send("PULL-DOC-REQ", {})))["doc"]
        assert isinstance(found, dict)
        return {name: without_arrays(value) for name, value in found.items()}

    async def settled(self) -> dict[str, Any]:
        """Returns the document when the run is read and shown."""
        before = await self.document()
        while True:
            await asyncio.sleep(0.3)
            after = await self.document()
            if after == before:
                return after
            before = after

    async def code(self) -> int | None:
        """Returns with which code the server closed the connection."""
        while not self._ended:  # the end can be read once
            part = await asyncio.wait_for(self.socket.read_message(), LIMIT_SECONDS)
            self._ended = part is None
        return self.socket.close_code

    async def _part(self) -> str | bytes:
        part = await asyncio.wait_for(self.socket.read_message(), LIMIT_SECONDS)
        assert part is not None, f"closed with {self.socket.close_code}"
        return part


def without_arrays(value: Any) -> Any:
    """The same, without the arrays: they are named anew in each message."""
    if isinstance(value, list):
        return [without_arrays(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "ndarray":
        return value["shape"]
    return {name: without_arrays(one) for name, one in value.items()}


@asynccontextmanager
async def viewing(server: DashboardServer, page: str = "") -> AsyncIterator[Viewer]:
    """Opens a page as a script would, or joins the session of a page that is open."""
    body = page or (await asyncio.to_thread(ask, server)).body.decode()
    token = re.search(r'"token":"([^"]+)"', body)
    assert token is not None
    address = HTTPRequest(f"ws://127.0.0.1:{server.port}/ws")
    socket = await websocket_connect(
        address, subprotocols=["bokeh", token[1]], max_message_size=1 << 28
    )
    viewer = Viewer(socket)
    for _ in range(3):  # the first message says that the session is open
        await viewer._part()
    try:
        yield viewer
    finally:
        socket.close()
        await viewer.code()


def in_a_loop(attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a coroutine in a thread: Playwright's browser leaves a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, attempt()).result()
