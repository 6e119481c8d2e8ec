"""Servers make a task's address one of this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import distlab as dl
from distlab.cluster import server
from distlab.errors import ClusterError, ClusterSpecError

CLUSTER = dl.ClusterSpec({"worker": ["host:1", "host:2"], "ps": ["host:3"]})


@pytest.fixture
def started() -> Iterator[dl.Server]:
    made = dl.Server(CLUSTER, job_name="worker", task_index=1, protocol="grpc")
    yield made
    made.stop()


def test_a_server_runs_at_its_tasks_address_until_it_is_stopped(started: dl.Server) -> None:
    assert (started.address, started.target) == ("host:2", "grpc://host:2")
    assert server.running_at("host:2") is started
    started.start()
    started.stop()
    assert server.running_at("host:2") is None


def test_two_servers_can_not_share_an_address(started: dl.Server) -> None:
    other = dl.Server(CLUSTER, "worker", 1, start=False)
    with pytest.raises(ClusterError, match=r"host:2.*another port"):
        other.start()
    other.stop()  # did not start: the one that did goes on
    assert server.running_at("host:2") is started


def test_the_only_job_and_task_need_not_be_named() -> None:
    made = dl.Server({"ps": ["host:9"]}, start=False)
    assert (made.job_name, made.task_index, made.address) == ("ps", 0, "host:9")
    assert server.running_at("host:9") is None


@pytest.mark.parametrize(
    ("job", "index", "said"),
    [
        (None, 0, r"job_name must be one of \['worker', 'ps'\], got None"),
        ("worker", None, r"task_index must be one of \[0, 1\], got None"),
        ("chief", 0, "job_name must be one of.*'chief'"),
        ("worker", 2, "task_index must be one of.*got 2"),
    ],
)
def test_a_task_that_the_cluster_does_not_name_is_refused(
    job: str | None, index: int | None, said: str
) -> None:
    with pytest.raises(ClusterSpecError, match=said):
        dl.Server(CLUSTER, job, index)


def test_local_servers_have_addresses_of_their_own() -> None:
    first, second = dl.Server.create_local_server(), dl.Server.create_local_server()
    assert first.address != second.address
    first.stop()
    second.stop()
