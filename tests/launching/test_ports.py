"""Ports that stay free until their process takes them."""

from __future__ import annotations

import socket

from distlab.launching.ports import Ports


def test_a_server_can_listen_on_a_kept_port() -> None:
    with (
        Ports(1) as ports,
        socket.create_server(("127.0.0.1", ports.numbers[0])) as server,
        socket.create_connection(server.getsockname(), timeout=60) as client,
    ):
        assert client.getpeername()[1] == ports.numbers[0]


def test_the_kernel_gives_a_kept_port_to_nobody() -> None:
    with Ports(50) as ports:
        others = [socket.create_server(("127.0.0.1", 0)) for _ in range(200)]
        taken = {other.getsockname()[1] for other in others}
        for other in others:
            other.close()
        assert taken & set(ports.numbers) == set()
