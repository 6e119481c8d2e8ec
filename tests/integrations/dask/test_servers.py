"""Tasks that are processes with an address each: `distlab server` and `Server.join`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import distlab as dl
from distlab.cluster_resolver import SimpleClusterResolver
from distlab.errors import (
    ClusterError,
    ClusterSpecError,
    ServerLostError,
)
from distlab.integrations.dask import handlers
from distlab.launching.ports import Ports
from distlab.processes import notices
from tests.patience import wait_until

JOINS = """
import distlab as dl
resolver = dl.cluster_resolver.TFConfigClusterResolver()
server = dl.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc")
server.join()
"""
LIMIT_SECONDS = 120.0


class Tasks:
    """The processes of a cluster with two workers and two parameter servers."""

    def __init__(self, ports: list[int]) -> None:
        self.addresses = {
            job: [f"127.0.0.1:{ports.pop()}" for _ in range(2)] for job in ("worker", "ps")
        }
        self._running: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        for job in self.addresses:
            for index in range(2):
                self.start(job, index)

    def start(self, job: str, index: int) -> None:
        task = {"type": job, "index": index}
        config = json.dumps({"cluster": {"chief": ["chief:1"], **self.addresses}, "task": task})
        own_program = job == "worker" and index == 1
        command = ["-c", JOINS] if own_program else ["-m", "distlab", "server"]
        self._running[job, index] = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, "TF_CONFIG": config, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.DEVNULL,
        )

    def pid(self, job: str, index: int) -> int:
        return self._running[job, index].pid

    def kill(self, job: str, index: int) -> None:
        self._running[job, index].kill()
        self._running[job, index].wait()

    def stop(self) -> None:
        for job, index in self._running:
            self.kill(job, index)

    def strategy(self) -> dl.ParameterServerStrategy:
        resolver = SimpleClusterResolver(dl.ClusterSpec(self.addresses), task_type="chief")
        return dl.ParameterServerStrategy(resolver)


@pytest.fixture(scope="module")
def tasks() -> Iterator[Tasks]:
    with Ports(4) as ports:
        made = Tasks([*ports.numbers])
        yield made
        made.stop()


def coordinator_of(strategy: dl.ParameterServerStrategy) -> dl.coordinator.ClusterCoordinator:
    return dl.coordinator.ClusterCoordinator(strategy)


def both_run(coordinator: dl.coordinator.ClusterCoordinator, folder: Path) -> set[int]:
    """Runs a function on each worker, which waits for the other one."""
    folder.mkdir()

    def meet() -> int:
        (folder / str(os.getpid())).touch()
        end = time.monotonic() + 120
        while len(list(folder.iterdir())) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        return os.getpid()

    return set(coordinator.fetch([coordinator.schedule(meet) for _ in range(2)]))


def test_a_coordinator_uses_the_processes_at_the_addresses(tasks: Tasks, tmp_path: Path) -> None:
    strategy = tasks.strategy()
    assert repr(strategy) == "ParameterServerStrategy(2 workers, 2 servers)"
    coordinator = coordinator_of(strategy)
    with strategy.scope():
        counts = [dl.Variable(0), dl.Variable(10)]

    def step() -> None:
        for count in counts:
            count.assign_add(1)

    for _ in range(20):
        coordinator.schedule(step)
    coordinator.join()
    assert [int(count.numpy()) for count in counts] == [20, 30]
    assert [count.parameter_server for count in counts] == [0, 1]
    ran = both_run(coordinator, tmp_path / "both")
    assert ran == {tasks.pid("worker", 0), tasks.pid("worker", 1)}


def test_a_killed_worker_that_is_started_again_rejoins(tasks: Tasks, tmp_path: Path) -> None:
    strategy = tasks.strategy()
    coordinator = coordinator_of(strategy)
    with strategy.scope():
        done = dl.Variable(0)
    begun = tmp_path / "begun"

    def step(number: int) -> int:
        if number == 0 and not begun.exists():
            begun.write_text(str(os.getpid()))
            time.sleep(600)  # until it is killed
        done.assign_add(1)
        return number

    results = [coordinator.schedule(step, (n,)) for n in range(6)]
    wait_until(lambda: begun.exists() and bool(begun.read_text()))
    victim = [tasks.pid("worker", n) for n in range(2)].index(int(begun.read_text()))
    tasks.kill("worker", victim)
    coordinator.join()
    assert coordinator.fetch(results) == list(range(6))
    assert int(done.numpy()) == 6
    tasks.start("worker", victim)
    assert tasks.pid("worker", victim) in both_run(coordinator, tmp_path / "both")


def test_a_lost_server_is_told_and_serves_the_next_strategy(tasks: Tasks) -> None:
    strategy = tasks.strategy()
    coordinator = coordinator_of(strategy)
    with strategy.scope():
        kept, lost = dl.Variable(1.0), dl.Variable(2.0)
    waiting = coordinator.schedule(time.sleep, (600,))
    tasks.kill("ps", 1)
    with pytest.raises(ServerLostError, match=r"Parameter server 1 at tcp://127.0.0.1:\d+ is gone"):
        waiting.fetch()
    with pytest.raises(ServerLostError, match="Parameter server 1"):
        lost.numpy()
    assert float(kept.numpy()) == 1.0
    # A function that runs goes on, which keeps its worker from others.
    for index in range(2):
        tasks.kill("worker", index)
        tasks.start("worker", index)
    tasks.start("ps", 1)
    again = tasks.strategy()
    with again.scope():
        made = [dl.Variable(3.0), dl.Variable(4.0)]
    assert coordinator_of(again).schedule(lambda: sum(map(float, made))).fetch() == 7.0
    with pytest.raises(ServerLostError):
        lost.numpy()


def test_tasks_that_are_not_there_are_named_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISTLAB_START_SECONDS", "1")
    monkeypatch.setattr(notices, "_SILENT_SECONDS", 0.2)
    with Ports(2) as ports:
        worker, ps = (f"127.0.0.1:{port}" for port in ports.numbers)
        spec = dl.ClusterSpec({"worker": [worker], "ps": [ps]})
        with pytest.raises(ClusterError) as raised:
            dl.ParameterServerStrategy(SimpleClusterResolver(spec))
    said = str(raised.value)
    assert f"worker 0 at {worker}" in said
    assert f"ps 0 at {ps}" in said
    assert "distlab server --job worker --index 0" in said
    assert capsys.readouterr().err == (
        f"distlab: waits for worker 0 to listen at {worker}, ps 0 to listen at {ps}, 1 s at most.\n"
    )


def test_another_task_at_an_address_is_refused(tasks: Tasks) -> None:
    swapped = {**tasks.addresses, "worker": tasks.addresses["worker"][::-1]}
    with pytest.raises(ClusterError, match=r"worker (0|1) of the cluster is at .* worker (1|0) "):
        dl.ParameterServerStrategy(SimpleClusterResolver(dl.ClusterSpec(swapped)))


def test_other_versions_are_refused(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {**handlers.versions(), "cloudpickle": "0.1"}
    monkeypatch.setattr(handlers, "versions", lambda: own)
    with pytest.raises(ClusterError, match=r"at .* cloudpickle \d+.\d+ there and 0.1 her"):
        tasks.strategy()


def test_only_the_chief_makes_the_strategy(tasks: Tasks) -> None:
    resolver = SimpleClusterResolver(dl.ClusterSpec(tasks.addresses), task_type="worker", task_id=1)
    with pytest.raises(ClusterError, match=r"This process is worker 1 .*\.join\(\) here"):
        dl.ParameterServerStrategy(resolver)


def test_a_port_that_another_process_uses_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        cluster = json.dumps({"worker": [address], "ps": ["b:1"]})
        task = ["--job", "worker", "--index", "0", "--cluster", cluster]
        done = subprocess.run(
            [sys.executable, "-m", "distlab", "server", *task],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    assert done.returncode == 2
    assert f"distlab: error: Server(worker 0 at {address}) must listen" in done.stderr
    assert "another process listens already" in done.stderr


@pytest.mark.parametrize(
    ("job", "address", "said"),
    [
        ("chief", "here:1", "Workers and parameter servers are served"),
        ("ps", "here:99999", "has an address with a port.*Write its port"),
    ],
)
def test_what_cannot_be_served_is_refused(job: str, address: str, said: str) -> None:
    server = dl.Server({job: [address]})
    try:
        with pytest.raises(ClusterSpecError, match=said):
            server.join()
    finally:
        server.stop()
