"""The connections over which CPU devices of several processes exchange values.

JAX's library for them, Gloo, leaves their buffers at the kernel's defaults. Between processes of
one machine that is one segment under way at a time, whose receipt the kernel confirms after 40 ms:
64 KB take 30 ms instead of 2, and 1 MB half a second.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import jax

_BYTES: Final = 4 << 20
_DESCRIPTORS: Final = Path("/proc/self/fd")


def settle(outputs: Any) -> None:
    """Waits for the first run of a program, and widens the connections that it has opened."""
    if jax.local_devices()[0].platform == "cpu":
        jax.block_until_ready(outputs)
        widen()


def widen() -> int:
    """Gives each TCP connection of this process a send buffer of 4 MiB; returns their number."""
    count = 0
    for one in tcp_sockets():
        with suppress(OSError):  # it listens
            one.getpeername()
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < _BYTES:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BYTES)
            count += 1
    return count


def tcp_sockets() -> Iterator[socket.socket]:
    """Yields an object of its own for each TCP socket of this process; none except on Linux."""
    names = os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else []  # noqa: PTH208 - of numbers
    for name in names:
        with suppress(OSError):  # it was closed meanwhile
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                of_internet = one.family in (socket.AF_INET, socket.AF_INET6)
                if of_internet and one.type == socket.SOCK_STREAM:
                    yield one
