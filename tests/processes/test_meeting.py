"""Processes meet at the chief's address: all come, or an error names who does not."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from distlab.errors import ClusterError
from distlab.launching.ports import Ports
from distlab.processes import meeting, notices

NAMES = ["worker:0", "worker:1", "worker:2"]
SECONDS = 60.0


def hello(index: int, **same: object) -> dict[str, Any]:
    return {"index": index, "host": f"host{index}", "pid": index, "same": {"cluster": 1, **same}}


@pytest.fixture
def address() -> Iterator[str]:
    with Ports(1) as ports:
        yield f"127.0.0.1:{ports.numbers[0]}"


def connected(address: str) -> socket.socket:
    """Connects to the chief, as soon as it listens."""
    host, port = address.split(":")
    until = time.monotonic() + SECONDS
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=SECONDS)
        except ConnectionRefusedError:
            assert time.monotonic() < until


@pytest.fixture
def start() -> Any:
    with ThreadPoolExecutor(8) as threads:

        def started(function: Callable[..., Any], *args: Any) -> Future[Any]:
            return threads.submit(function, *args)

        yield started


def test_all_learn_who_the_others_are_and_where_the_service_is(address: str, start: Any) -> None:
    others = [start(meeting.as_worker, address, hello(n), SECONDS) for n in (2, 1)]
    answer, links, service = meeting.as_chief(address, hello(0), NAMES, SECONDS)
    assert [said.index for said in answer.hellos] == [0, 1, 2]
    assert answer.one_machine
    assert len(links) == 2
    assert service.address.startswith("127.0.0.1:")
    assert service.bound == service.address
    for other in others:
        theirs, link = other.result(SECONDS)
        assert (theirs, theirs.service) == (answer, service.address)
        assert not meeting.has_closed(link)
        link.close()
    for link in links:
        assert link.recv(1) == b""  # it closes with the other end
        assert meeting.has_closed(link)
        link.close()


def test_all_are_told_who_does_not_come(address: str, start: Any) -> None:
    other = start(meeting.as_worker, address, hello(2), SECONDS)
    with pytest.raises(ClusterError, match="worker:1 did not come") as at_chief:
        meeting.as_chief(address, hello(0), NAMES, 2.0)
    with pytest.raises(ClusterError) as at_worker:
        other.result(SECONDS)
    assert str(at_worker.value) == str(at_chief.value)


def test_a_chief_that_does_not_come_is_named_with_its_address(address: str) -> None:
    with pytest.raises(ClusterError, match=f"did not answer at {address}"):
        meeting.as_worker(address, hello(1), 0.3)


def test_what_must_be_the_same_is_compared_and_all_are_told(address: str, start: Any) -> None:
    others = [start(meeting.as_worker, address, hello(1, jax="2"), SECONDS)]
    with pytest.raises(ClusterError, match="same jax: the chief has 1, and worker:1 on host1 has"):
        meeting.as_chief(address, hello(0, jax="1"), NAMES, SECONDS)
    for other in others:
        with pytest.raises(ClusterError, match="same jax"):
            other.result(SECONDS)


def test_a_task_that_the_cluster_does_not_have_is_refused(address: str, start: Any) -> None:
    other = start(meeting.as_worker, address, hello(3), SECONDS)
    with pytest.raises(ClusterError, match="number 3"):
        meeting.as_chief(address, hello(0), NAMES, SECONDS)
    with pytest.raises(ClusterError):
        other.result(SECONDS)


def test_two_processes_of_one_task_are_refused(address: str, start: Any) -> None:
    others = [start(meeting.as_worker, address, hello(1), SECONDS) for _ in range(2)]
    with pytest.raises(ClusterError, match="two came as worker:1"):
        meeting.as_chief(address, hello(0), NAMES, SECONDS)
    for other in others:
        with pytest.raises(ClusterError):
            other.result(SECONDS)


def test_silent_slow_and_other_programs_hold_nobody_up(address: str, start: Any) -> None:
    chief = start(meeting.as_chief, address, hello(0), NAMES[:2], SECONDS)
    silent = [connected(address) for _ in range(6)]
    silent[0].sendall(b" ")
    with connected(address) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\n")
        assert stranger.recv(1) == b""
    began = time.monotonic()
    _, link = meeting.as_worker(address, hello(1), SECONDS)
    assert time.monotonic() - began < 4.0  # less than one of them may take
    for each in [link, *chief.result(SECONDS)[1], *silent]:
        each.close()


def test_what_is_no_hello_is_passed_over_and_counted(
    address: str, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "_HELLO_SECONDS", 0.3)
    words = [
        b"GET / HTTP/1.1\n",
        b"[1]\n",
        b"{}\n",
        b'{"index": 1, "host": "a", "pid": 1, "same": [1]}\n',
        b'{"index": 1, "host": "a", "pid": 1, "same": null}\n',
        b'{"index": "1", "host": "a", "pid": 1, "same": {}}\n',
        b'{"index": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b"a" * (3 << 20),
        b"\xff\xfe\n",
        b"{",  # and no more
    ]
    chief = start(meeting.as_chief, address, hello(0), NAMES[:2], 3.0)
    for each in words:
        with connected(address) as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(each)
            assert stranger.recv(1) == b""
    with pytest.raises(ClusterError, match=r"worker:1 did not come .* \(10 connections of other"):
        chief.result(SECONDS)


def test_an_address_without_a_port_is_refused() -> None:
    for bad in ("host", "host:", "host:http"):
        with pytest.raises(ClusterError, match="needs an address host:port"):
            meeting.as_worker(bad, hello(1), SECONDS)


def test_a_chief_elsewhere_and_a_taken_port_are_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterError, match="can't be opened"):
            meeting.as_chief(address, hello(0), NAMES, SECONDS)


def test_who_waits_long_says_for_whom(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notices, "_SILENT_SECONDS", 0.2)
    with pytest.raises(ClusterError):
        meeting.as_chief(address, hello(0), NAMES, 1.0)
    assert capsys.readouterr().err == (
        f"distlab: waits for worker:1, worker:2 to come to the chief at {address}, 1 s at most.\n"
    )
    with pytest.raises(ClusterError):
        meeting.as_worker(address, hello(1), 1.0)
    assert capsys.readouterr().err == (
        f"distlab: waits for the chief to listen at {address}, 1 s at most.\n"
    )
