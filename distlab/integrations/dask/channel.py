"""Connections of which a thread sends and receives, and connections of an event loop."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, final

from distlab.integrations.dask.sockets import shut
from distlab.integrations.dask.wire import Incoming, as_pieces


@final
class Channel:
    """A connection that belongs to one thread at a time.

    Args:
      own: The socket.
      limit: How many seconds it may take to send or receive; None for any time.
    """

    def __init__(self, own: socket.socket, limit: float | None = None) -> None:
        own.settimeout(limit)
        self._socket = own
        self._incoming = Incoming()
        self._received: deque[Any] = deque()

    def send(self, message: Any) -> None:
        """Sends a message."""
        pieces = as_pieces(message)
        sent = self._socket.sendmsg(pieces)
        for piece in pieces:
            if sent < len(piece):
                self._socket.sendall(memoryview(piece)[sent:])
            sent = max(sent - len(piece), 0)

    def receive(self) -> Any:
        """Waits for a message, and returns it."""
        while not self._received:
            count = self._socket.recv_into(self._incoming.room())
            if not count:
                raise ConnectionError("the connection was closed")
            self._received += self._incoming.came(count)
        return self._received.popleft()

    def shut(self) -> None:
        """Ends the connection, from any thread."""
        shut(self._socket)

    def close(self) -> None:
        """Ends the connection, from its thread."""
        shut(self._socket)
        self._socket.close()


class Messages(asyncio.BufferedProtocol):
    """A connection of an event loop.

    Args:
      came: Called with each message, and with what sends an answer.
    """

    def __init__(self, came: Callable[[Any, Messages], None]) -> None:
        self._came = came
        self._incoming = Incoming()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        """Begins."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns where the next bytes go."""
        del sizehint
        return self._incoming.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Passes on what is complete."""
        for message in self._incoming.came(nbytes):
            self._came(message, self)

    @property
    def ended(self) -> bool:
        """Whether nothing can be sent."""
        return self._transport is None or self._transport.is_closing()

    def send(self, message: Any) -> None:
        """Sends a message, some time; nothing when the connection has ended."""
        if self._transport is not None and not self.ended:
            for piece in as_pieces(message):
                self._transport.write(piece)

    def close(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.abort()
