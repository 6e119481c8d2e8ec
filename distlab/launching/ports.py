"""Free TCP ports of this machine, kept free until their process takes them."""

from __future__ import annotations

import socket
from typing import Self


class Ports:
    """Ports on 127.0.0.1 that the kernel gives to nobody else while this object is open.

    Each is bound here in a way that lets a server listen on it: with `SO_REUSEADDR`, which Python's
    servers set, and `SO_REUSEPORT`, which gRPC sets.
    """

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                self._sockets.append(_bound())
        except OSError:
            self.close()
            raise
        self.numbers: list[int] = [one.getsockname()[1] for one in self._sockets]

    def close(self) -> None:
        """Gives the ports back."""
        for one in self._sockets:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bound() -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
    except OSError:
        one.close()
        raise
    return one
