"""Connections of collectives: shut for reading alone, and open until all had the time to do so."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import TypeAlias

import pytest

from distlab.processes import gloo_sockets

SECONDS = 60.0

Pair: TypeAlias = tuple[socket.socket, socket.socket, set[gloo_sockets.Address]]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Yields an end of a connection, the other one, and the address at which that listens."""
    monkeypatch.setattr(gloo_sockets, "_OPEN_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as own:
            other, _ = server.accept()
            with other:
                own.settimeout(SECONDS)
                other.settimeout(SECONDS)
                yield own, other, {address}
    gloo_sockets.close()


def test_what_was_received_is_read_and_then_the_end(pair: Pair) -> None:
    own, other, addresses = pair
    other.sendall(b"ready")
    assert own.recv(5, socket.MSG_PEEK) == b"ready"
    assert gloo_sockets.shut(addresses) == 2  # this process has both ends
    assert own.recv(16) == b"ready"
    assert own.recv(16) == b""


def test_what_is_sent_after_the_other_end_was_shut_is_no_error(pair: Pair) -> None:
    own, other, addresses = pair
    gloo_sockets.shut(addresses)
    other.close()  # as Gloo does when it reads the end
    for _ in range(3):
        own.sendall(b"data")


def test_connections_are_shut_once_and_closed_in_the_end(pair: Pair) -> None:
    own, other, addresses = pair
    assert gloo_sockets.shut(addresses) == 2
    assert gloo_sockets.shut(addresses) == 0
    other.close()
    begun = time.monotonic()
    gloo_sockets.close()
    assert time.monotonic() - begun > 0.05
    with pytest.raises(ConnectionError):
        _send_for_ever(own)


def _send_for_ever(end: socket.socket) -> None:
    while True:
        end.sendall(b"data")


def test_other_connections_are_left_alone(pair: Pair) -> None:
    own, other, _ = pair
    assert gloo_sockets.shut({("127.0.0.1", 1)}) == 0
    other.sendall(b"more")
    assert own.recv(16) == b"more"
