"""A connection between processes that know one key, for events on their way to a run's folder.

Each end proves that it knows the key before anything else is read. What is sent is not encrypted.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import struct
import time
from contextlib import suppress
from typing import Final

_CHALLENGE_BYTES: Final = 32
_HEAD: Final = struct.Struct("!Q")
_MOST_BYTES: Final = 1 << 28
_SILENT_SECONDS: Final = 10
"""After how long without traffic the system looks whether the other machine is still there."""


class Channel:
    """Messages over a socket, each whole or not at all."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._until: float | None = None
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("KEEPIDLE", _SILENT_SECONDS), ("KEEPINTVL", 5), ("KEEPCNT", 3)):
            with suppress(AttributeError, OSError):  # not on every system
                link.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"), value)

    def send(self, message: bytes) -> None:
        """Sends a message."""
        self._link.sendall(_HEAD.pack(len(message)) + message)

    def receive(self) -> bytes:
        """Returns the next message."""
        (size,) = _HEAD.unpack(self._exactly(_HEAD.size))
        if size > _MOST_BYTES:
            raise ConnectionError(f"a message of {size} bytes was announced")
        return self._exactly(size)

    def wait_at_most(self, seconds: float | None, *, in_all: bool = False) -> None:
        """Limits how long sending and receiving may wait; None for any time."""
        self._until = time.monotonic() + seconds if in_all and seconds is not None else None
        self._link.settimeout(seconds)

    def prove(self, key: str) -> None:
        """Proves to the end that calls `ask_for_proof` that this one knows the key."""
        theirs = self._exactly(_CHALLENGE_BYTES)
        ours = secrets.token_bytes(_CHALLENGE_BYTES)
        self._link.sendall(ours + _proof(key, b"client", theirs + ours))
        self._require(_proof(key, b"server", theirs + ours))

    def ask_for_proof(self, key: str) -> None:
        """Lets the end that calls `prove` go on only if it knows the key."""
        ours = secrets.token_bytes(_CHALLENGE_BYTES)
        self._link.sendall(ours)
        theirs = self._exactly(_CHALLENGE_BYTES)
        self._require(_proof(key, b"client", ours + theirs))
        self._link.sendall(_proof(key, b"server", ours + theirs))

    def close(self) -> None:
        """Closes the connection, also for a thread that waits in it."""
        self.hang_up()
        self._link.close()

    def hang_up(self) -> None:
        """Ends the connection. The thread that waits in it closes it: its number is used again."""
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Releases the socket in a forked child; the parent goes on with it."""
        self._link.close()

    def _require(self, proof: bytes) -> None:
        if not hmac.compare_digest(self._exactly(len(proof)), proof):
            raise ConnectionError("the other end does not know the key")

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            if self._until is not None:
                left = self._until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the other end took too long")
                self._link.settimeout(left)
            part = self._link.recv(min(size - len(received), 1 << 20))
            if not part:
                raise ConnectionError("the other end has closed the connection")
            received += part
        return bytes(received)


def _proof(key: str, role: bytes, challenges: bytes) -> bytes:
    return hmac.digest(key.encode(), role + challenges, "sha256")
