"""The TCP connections by which CPU devices of several processes communicate (Gloo).

JAX has no way to end a collective that waits for a process which will never come. When its
connections are shut, it fails at once. Gloo listens at one address a process; a connection of
Gloo has such an address at one of its ends, which tells it from the program's other ones.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]

_DESCRIPTORS = Path("/proc/self/fd")


def listening() -> set[Address]:
    """Returns the addresses at which this process listens for TCP connections."""
    found = set()
    for one in _tcp_sockets():
        with suppress(OSError):
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.add(_plain(one.getsockname()))
    return found


def shut(addresses: set[Address]) -> int:
    """Shuts this process's connections that have one of the addresses at an end.

    Listening sockets stay open: without them Gloo would end the process.

    Args:
      addresses: Where the processes listen for Gloo's connections.

    Returns:
      The number of connections that were shut.
    """
    count = 0
    for one in _tcp_sockets():
        with suppress(OSError):  # it listens, or was closed meanwhile
            if {_plain(one.getpeername()), _plain(one.getsockname())} & addresses:
                one.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _tcp_sockets() -> Iterator[socket.socket]:
    """Yields an object of its own for each TCP socket of this process."""
    if not _DESCRIPTORS.is_dir():  # Linux alone has it
        return
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - names of numbers
        with suppress(OSError):  # it was closed meanwhile
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.type == socket.SOCK_STREAM and one.family in (
                    socket.AF_INET,
                    socket.AF_INET6,
                ):
                    yield one


def _plain(name: tuple[str, ...] | tuple[str, int]) -> Address:
    return str(name[0]).removeprefix("::ffff:"), int(name[1])
