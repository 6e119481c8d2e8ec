"""The TCP connections by which CPU devices of several processes communicate (Gloo).

JAX has no way to end a collective that waits for a process which will never come. When its
connections are shut, it fails at once. Gloo listens at one address a process; a connection of
Gloo has such an address at one of its ends, which the program's other ones have not.

Gloo forgets what it is about to send when the other end is closed just then, and its collective
never ends. So each process shuts its connections for reading alone, and keeps them open until
the others had the time to do the same.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Final, TypeAlias

from distlab.devices.connections import tcp_sockets

Address: TypeAlias = tuple[str, int]

_OPEN_SECONDS: Final = 1.0
"""A connection that was shut stays open: other processes shut theirs within 0.1 s."""

_shut: dict[int, socket.socket] = {}
"""An own object for each connection that was shut, by its inode: it is open although Gloo has
closed it."""
_shut_at = 0.0


def listening() -> set[Address]:
    """Returns the addresses at which this process listens for TCP connections."""
    found = set()
    for one in tcp_sockets():
        with suppress(OSError):
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.add(_plain(one.getsockname()))
    return found


def shut(addresses: set[Address]) -> int:
    """Shuts this process's connections that have one of the addresses at an end, until `close`.

    Listening sockets are left alone: without them Gloo would end the process.
    """
    global _shut_at
    count = 0
    for one in tcp_sockets():
        with suppress(OSError):  # it listens, or was closed meanwhile
            ends = {_plain(one.getpeername()), _plain(one.getsockname())}
            inode = os.fstat(one.fileno()).st_ino
            if ends & addresses and inode not in _shut:
                _shut[inode] = one.dup()
                _shut_at = time.monotonic()
                one.shutdown(socket.SHUT_RD)
                count += 1
    return count


def close() -> None:
    """Closes the connections that were shut, once the others had the time to shut theirs."""
    if _shut:
        time.sleep(max(0.0, _shut_at + _OPEN_SECONDS - time.monotonic()))
    while _shut:
        _shut.popitem()[1].close()


def _plain(name: tuple[str, ...] | tuple[str, int]) -> Address:
    return str(name[0]).removeprefix("::ffff:"), int(name[1])
