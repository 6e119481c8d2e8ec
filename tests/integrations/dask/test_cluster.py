"""Asynchronous training with workers and parameter servers as processes; some are killed."""

from __future__ import annotations

import contextlib
import gc
import http.client
import io
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from distributed.security import Security

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    CancelledError,
    ClusterError,
    ContextError,
    InvalidArgumentError,
    OptionError,
    OutOfRangeError,
    ServerLostError,
    StructureError,
)
from distlab.experimental.partitioners import FixedShardsPartitioner
from distlab.integrations.dask.cluster import ParameterServerCluster
from distlab.integrations.dask.resolver import known_workers
from tests.patience import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[ParameterServerCluster]:
    with dl.launch(workers=2, parameter_servers=3) as made:
        yield made


def strategy_of(cluster: ParameterServerCluster, servers: int) -> dl.ParameterServerStrategy:
    """Returns a strategy whose partitioner makes a part for each of so many servers."""
    resolver = dl.cluster_resolver.DaskClusterResolver(cluster.client, 2, servers)
    return dl.ParameterServerStrategy(resolver, FixedShardsPartitioner(servers))


@pytest.fixture
def strategy(cluster: ParameterServerCluster) -> dl.ParameterServerStrategy:
    resolver = dl.cluster_resolver.DaskClusterResolver(cluster.client, 2, 2)
    return dl.ParameterServerStrategy(resolver)


@pytest.fixture
def coordinator(strategy: dl.ParameterServerStrategy) -> dl.coordinator.ClusterCoordinator:
    return dl.coordinator.ClusterCoordinator(strategy)


def test_strangers_on_the_machine_get_nothing(cluster: ParameterServerCluster) -> None:
    scheduler: Any = cluster.client.scheduler
    of_cluster = {scheduler.address, *known_workers(cluster.client)}
    closed = {int(address.rpartition(":")[2]) for address in of_cluster}
    stranger = Security.temporary().get_connection_args("client")["ssl_context"]
    stranger.verify_mode = ssl.CERT_NONE
    for port in closed:
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        with stranger.wrap_socket(plain) as secure, pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
            secure.recv(1)
    tasks = psutil.Process().children(recursive=True)
    found = [one.laddr for task in tasks for one in task.net_connections() if not one.raddr]
    assert {place.ip for place in found} == {"127.0.0.1"}
    for port in {place.port for place in found} - closed:  # Dask's pages
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as pages:
            pages.request("GET", "/metrics")
            assert pages.getresponse().status == 404


def test_functions_run_in_other_processes(
    cluster: ParameterServerCluster,
    strategy: dl.ParameterServerStrategy,
    coordinator: dl.coordinator.ClusterCoordinator,
) -> None:
    ran = {coordinator.schedule(os.getpid).fetch() for _ in range(3)}
    assert ran <= {cluster.pid("worker", 0), cluster.pid("worker", 1)}
    result = coordinator.schedule(lambda x, scale: {"y": x * scale}, (jnp.ones(2),), {"scale": 3.0})
    assert isinstance(result.get()["y"], jax.Array)
    assert result.fetch()["y"].tolist() == [3.0, 3.0]
    assert repr(strategy) == "ParameterServerStrategy(2 workers, 2 servers)"
    assert strategy.num_replicas_in_sync == 1


def test_no_update_of_several_workers_is_lost(
    strategy: dl.ParameterServerStrategy, coordinator: dl.coordinator.ClusterCoordinator
) -> None:
    with strategy.scope():
        count = dl.Variable(0)
        table = dl.Variable(np.zeros((3, 2), np.float32))
        half = dl.Variable(jnp.zeros(2, jnp.bfloat16))

    def step(x: jax.Array) -> jax.Array:
        half.assign_add(jnp.ones(2, jnp.bfloat16))
        table.scatter_add(dl.IndexedSlices(jnp.ones((1, 2)), jnp.array([1])))
        return table.value().sum() + x

    def closure(x: float) -> Any:
        count.assign_add(1)
        return strategy.run(step, args=(x,))

    results = [coordinator.schedule(closure, (0.5,)) for _ in range(20)]
    coordinator.join()
    assert int(count.numpy()) == 20
    assert table.numpy().tolist() == [[0.0, 0.0], [20.0, 20.0], [0.0, 0.0]]
    assert half.numpy().astype(float).tolist() == [20.0, 20.0]
    assert {float(loss) % 1 for loss in coordinator.fetch(results)} == {0.5}
    count.assign(7)
    assert coordinator.schedule(lambda: count.value() * 2).fetch() == 14


def test_a_closure_reads_its_own_changes_then_those_of_others(
    strategy: dl.ParameterServerStrategy, coordinator: dl.coordinator.ClusterCoordinator
) -> None:
    with strategy.scope():
        a, b = dl.Variable(1.0), dl.Variable(10.0)

    def closure() -> list[float]:
        seen = [float(a), float(b)]
        a.assign_add(1.0)
        b.assign(20.0)
        return [*seen, float(a), float(b), float(a)]

    assert coordinator.schedule(closure).fetch() == [1.0, 10.0, 2.0, 20.0, 2.0]
    a.assign(5.0)
    assert coordinator.schedule(closure).fetch() == [5.0, 20.0, 6.0, 20.0, 6.0]


def test_each_worker_reads_a_dataset_of_its_own(
    coordinator: dl.coordinator.ClusterCoordinator,
) -> None:
    dataset = coordinator.create_per_worker_dataset(lambda: dl.data.Dataset.range(6).batch(3))
    assert dataset.element_spec.shape == (None,)

    def two(batches: Any) -> list[list[int]]:
        time.sleep(0.5)  # so that each worker takes one
        return [next(batches).tolist(), next(batches).tolist()]

    iterator = iter(dataset)
    results = [coordinator.schedule(two, (iterator,)) for _ in range(2)]
    assert coordinator.fetch(results) == [[[0, 1, 2], [3, 4, 5]]] * 2
    coordinator.schedule(two, (iterator,))
    with pytest.raises(OutOfRangeError, match="asked for more batches than worker"):
        coordinator.join()


def test_a_worker_without_a_dataset_says_so(
    coordinator: dl.coordinator.ClusterCoordinator,
) -> None:
    with pytest.raises(StructureError, match="got None"):
        coordinator.create_per_worker_dataset(None)
    iterator = iter(coordinator.create_per_worker_dataset(lambda: None))
    coordinator.schedule(next, (iterator,))
    with pytest.raises(StructureError, match=r"<lambda> must return .* but returned None\. Return"):
        coordinator.join()


def test_elements_appended_to_a_list_arrive_also_by_an_error(
    coordinator: dl.coordinator.ClusterCoordinator,
) -> None:
    losses: list[float] = []

    def step(x: float) -> None:
        losses.append(x)
        if x < 0:
            raise InvalidArgumentError("negative")

    for x in (1.0, 2.0, 3.0):
        coordinator.schedule(step, (x,))
    coordinator.join()
    coordinator.schedule(step, (-1.0,))
    with pytest.raises(InvalidArgumentError, match="negative"):
        coordinator.join()
    assert sorted(losses) == [-1.0, 1.0, 2.0, 3.0]


def test_an_argument_is_as_it_was_when_scheduled(
    coordinator: dl.coordinator.ClusterCoordinator,
) -> None:
    batch = np.zeros(100_000)
    results = []
    for number in range(8):
        batch[...] = number
        results.append(coordinator.schedule(np.mean, (batch,)))
    assert coordinator.fetch(results) == list(range(8))


def test_errors_are_those_of_the_function(coordinator: dl.coordinator.ClusterCoordinator) -> None:
    class OddError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def fail() -> None:
        raise InvalidArgumentError("negative")

    def odd() -> None:
        raise OddError(1, 2)

    failed = coordinator.schedule(fail)
    with pytest.raises(InvalidArgumentError, match="negative"):
        failed.fetch()
    with pytest.raises(InvalidArgumentError, match="negative"):
        coordinator.join()
    coordinator.schedule(odd)
    with pytest.raises(ClusterError, match="OddError: 1 and 2"):
        coordinator.join()
    assert coordinator.done()


def test_what_cannot_travel_is_refused(
    cluster: ParameterServerCluster,
    strategy: dl.ParameterServerStrategy,
    coordinator: dl.coordinator.ClusterCoordinator,
) -> None:
    lock = threading.Lock()
    with pytest.raises(ArgumentTypeError, match=r"must be picklable.*lock"):
        coordinator.schedule(lambda: lock)
    with pytest.raises(ArgumentTypeError, match="RemoteValue"):
        coordinator.schedule(abs, (coordinator.schedule(abs, (1,)),))
    for closure, words in [
        (lambda: dl.Variable(1.0), "Make variables in the coordinator"),
        (lambda: cluster.kill("worker", 0), "lives in the coordinator's process"),
        (lambda: coordinator.schedule(abs, (1,)), "lives in the coordinator's process"),
        (coordinator.join, "would wait for that function itself"),
    ]:
        coordinator.schedule(closure)
        with pytest.raises(ContextError, match=words):
            coordinator.join()
    coordinator.schedule(threading.Lock)
    with pytest.raises(ArgumentTypeError, match="The result of a closure"):
        coordinator.join()
    with strategy.scope():
        v = dl.Variable(2.0)
    assert coordinator.schedule(lambda: v).get() is v
    with pytest.raises(OptionError, match="devices and engines have no meaning"):
        dl.launch(workers=1, devices=2, parameter_servers=1)  # type: ignore[call-overload]


def test_a_function_defined_anew_at_each_call_is_compiled_once(
    strategy: dl.ParameterServerStrategy,
    coordinator: dl.coordinator.ClusterCoordinator,
) -> None:
    traced: list[int] = []
    with strategy.scope():
        v = dl.Variable(1.0)

    def train(rate: float) -> dl.coordinator.RemoteValue:
        def replica() -> jax.Array:
            traced.append(1)
            return v.value() * rate

        return coordinator.schedule(lambda: strategy.run(replica))

    assert [float(train(2.0).fetch()) for _ in range(6)] == [2.0] * 6
    assert len(traced) <= 2  # once in each worker


def test_a_killed_worker_loses_no_function_and_restarts_its_data(
    cluster: ParameterServerCluster,
    strategy: dl.ParameterServerStrategy,
    coordinator: dl.coordinator.ClusterCoordinator,
    tmp_path: Path,
) -> None:
    with strategy.scope():
        done = dl.Variable(0)
    batches = iter(coordinator.create_per_worker_dataset(lambda: dl.data.Dataset.range(100)))
    begun = tmp_path / "begun"

    def step(number: int, batches: Any) -> tuple[int, int]:
        first = int(next(batches))
        if number == 0 and not begun.exists():
            begun.write_text(str(os.getpid()))
            time.sleep(600)  # until it is killed
        done.assign_add(1)
        return number, first

    results = [coordinator.schedule(step, (n, batches)) for n in range(8)]
    deadline = time.monotonic() + 120
    while not begun.exists() or not begun.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    victim = next(n for n in range(2) if cluster.pid("worker", n) == int(begun.read_text()))
    cluster.kill("worker", victim)
    coordinator.join()
    assert [number for number, _ in coordinator.fetch(results)] == list(range(8))
    assert int(done.numpy()) == 8
    # Both workers run again: each waits until the other one is there.
    both = tmp_path / "both"
    both.mkdir()

    def meet(batches: Any) -> int:
        (both / str(os.getpid())).touch()
        end = time.monotonic() + 120
        while len(list(both.iterdir())) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        return int(next(batches))

    met = [coordinator.schedule(meet, (batches,)) for _ in range(2)]
    assert 0 in coordinator.fetch(met)  # the new process began anew


def test_functions_behind_a_long_one_go_to_an_idle_worker(
    coordinator: dl.coordinator.ClusterCoordinator, tmp_path: Path
) -> None:
    def step(number: int) -> int:
        (tmp_path / str(number)).touch()
        end = time.monotonic() + 120
        while number < 0 and not (tmp_path / "7").exists():  # until the last one has run
            assert time.monotonic() < end
            time.sleep(0.01)
        return number

    for _ in range(3):
        coordinator.fetch([coordinator.schedule(step, (100,)) for _ in range(8)])
    results = [coordinator.schedule(step, (number,)) for number in (-1, *range(8))]
    assert coordinator.fetch(results) == [-1, *range(8)]


def test_functions_after_a_failed_one_are_cancelled_or_run_once(
    strategy: dl.ParameterServerStrategy, coordinator: dl.coordinator.ClusterCoordinator
) -> None:
    with strategy.scope():
        count = dl.Variable(0)

    def step(number: int) -> None:
        if number == 20:
            raise InvalidArgumentError("number 20")
        count.assign_add(1)

    coordinator.fetch([coordinator.schedule(step, (0,)) for _ in range(20)])
    results: list[Any] = []

    def train() -> None:
        for number in range(60):
            results.append(coordinator.schedule(step, (number,)))  # noqa: PERF401 - it may raise
        coordinator.join()

    with pytest.raises(InvalidArgumentError, match="number 20"):
        train()
    cancelled = 0
    for number, result in enumerate(results):
        try:
            result.fetch()
        except CancelledError:
            cancelled += 1
        except InvalidArgumentError:
            assert number == 20
    assert int(count.numpy()) == 20 + len(results) - 1 - cancelled
    coordinator.schedule(step, (0,)).fetch()
    assert coordinator.done()


def test_what_a_worker_prints_is_shown_however_long_a_line_is(
    coordinator: dl.coordinator.ClusterCoordinator,
) -> None:
    def talk() -> None:
        print("x" * 300_000)
        print("after it")

    # Not capfd: its readouterr() loses what another thread prints while it reads.
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        coordinator.schedule(talk)
        coordinator.join()
        wait_until(lambda: "] after it\n" in shown.getvalue(), "the worker's lines")
    assert shown.getvalue().count("x") == 300_000


def test_variables_outlive_their_coordinator(strategy: dl.ParameterServerStrategy) -> None:
    with strategy.scope():
        v = dl.Variable(1.0)

    def train() -> None:
        coordinator = dl.coordinator.ClusterCoordinator(strategy)
        coordinator.schedule(lambda: v.assign_add(1.0) and None)
        coordinator.join()

    train()
    gc.collect()
    assert float(v.numpy()) == 2.0
    train()
    assert float(v.numpy()) == 3.0


def test_a_strategy_is_freed_with_its_functions_and_variables(
    cluster: ParameterServerCluster,
) -> None:
    def use() -> weakref.ref[dl.ParameterServerStrategy]:
        strategy = dl.ParameterServerStrategy(cluster.resolver)
        coordinator = dl.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            done = dl.Variable(0)

        def step() -> None:
            strategy.run(lambda: done.assign_add(1))

        for _ in range(3):
            coordinator.schedule(step)
        coordinator.join()
        assert int(done.numpy()) == 3
        return weakref.ref(strategy)

    kept = use()

    def is_freed() -> bool:
        gc.collect()
        return kept() is None

    wait_until(is_freed, "the strategy's end")


def test_strategies_of_one_cluster_are_apart(cluster: ParameterServerCluster) -> None:
    strategies = [dl.ParameterServerStrategy(cluster.client) for _ in range(2)]
    assert strategies[0].num_workers == 4  # one parameter server when none is asked for
    made = []
    for number, strategy in enumerate(strategies):
        with strategy.scope():
            made.append(dl.Variable(float(number)))
    coordinators = [dl.coordinator.ClusterCoordinator(strategy) for strategy in strategies]
    closures = [
        coordinator.schedule(lambda v=v: float(v))
        for coordinator, v in zip(coordinators, made, strict=True)
    ]
    assert [closure.fetch() for closure in closures] == [0.0, 1.0]


TABLE = np.arange(21, dtype=np.float32).reshape(7, 3)
TRAINED = {"table": (TABLE + 1).tolist(), "slots": [(2 * TABLE).tolist()], "step": 2, "half": 0.5}


def model() -> dict[str, Any]:
    """Returns the variables of a model; their first values are not those of the checkpoint."""
    return {
        "table": dl.Variable(jnp.zeros((7, 3))),
        "slots": [dl.Variable(jnp.zeros((7, 3)))],
        "step": dl.Variable(0),
        "half": dl.Variable(jnp.bfloat16(0)),
    }


def restored(strategy: dl.Strategy, path: str) -> dict[str, Any]:
    """Returns the variables of a model that is made under a strategy and restored."""
    with strategy.scope():
        made = model()
    dl.train.Checkpoint(**made).restore(path).assert_consumed()
    values = jax.tree.map(lambda leaf: np.asarray(leaf).astype(np.float32).tolist(), made)
    assert values == TRAINED
    return made


def test_checkpoints_fit_other_strategies_and_numbers_of_servers(
    cluster: ParameterServerCluster, tmp_path: Path
) -> None:
    strategy = strategy_of(cluster, 3)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        made = model()
    assert [part.parameter_server for part in made["table"].variables] == [0, 1, 2]
    made["table"].assign(TABLE)
    made["slots"][0].assign(2 * TABLE)
    made["half"].assign(0.5)

    def step() -> None:
        def replica() -> None:
            made["table"].assign_add(jnp.full((7, 3), 0.5))
            made["step"].assign_add(1)

        strategy.run(replica)

    manager = dl.train.CheckpointManager(dl.train.Checkpoint(**made), str(tmp_path), max_to_keep=1)
    for _ in range(2):
        coordinator.schedule(step)
        coordinator.join()
        manager.save()
    assert len(manager.checkpoints) == 1
    saved = str(manager.latest_checkpoint)
    restored(dl.OneDeviceStrategy("cpu:0"), saved)
    mirrored = restored(dl.MirroredStrategy(jax.devices()[:2]), saved)
    by_replicas = dl.train.Checkpoint(**mirrored).save(str(tmp_path / "ckpt"))
    fewer = strategy_of(cluster, 2)
    for path in (saved, by_replicas):
        again = restored(fewer, path)
    coordinator = dl.coordinator.ClusterCoordinator(fewer)
    assert coordinator.schedule(lambda: int(again["step"]) + float(again["half"])).fetch() == 2.5


def test_a_lost_server_and_a_stopped_cluster_raise_for_all_who_wait() -> None:
    with dl.launch(workers=1, parameter_servers=2) as cluster:
        strategy = dl.ParameterServerStrategy(cluster.resolver)
        coordinator = dl.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            kept, lost = dl.Variable(1.0), dl.Variable(2.0)

        def step() -> None:
            kept.assign_add(1.0)
            lost.assign_add(1.0)
            time.sleep(0.02)

        coordinator.schedule(step)
        coordinator.join()
        results = [coordinator.schedule(step) for _ in range(10_000)]
        cluster.kill("ps", 1)
        began = time.monotonic()
        with pytest.raises(ServerLostError, match=r"Parameter server 1 .* is gone"):
            coordinator.join()
        assert time.monotonic() - began < 60  # about 0.1 s; the machine may be busy
        assert "failed" in repr(results[-1])
        with pytest.raises(ServerLostError, match="Parameter server 1"):
            lost.numpy()
        assert float(kept.numpy()) >= 2.0
        with pytest.raises(ServerLostError):
            coordinator.schedule(step).fetch()
        resolver = dl.cluster_resolver.DaskClusterResolver(cluster.client, 1, 1)
        again = dl.ParameterServerStrategy(resolver)
        other = dl.coordinator.ClusterCoordinator(again)
        waiting = other.schedule(time.sleep, (600,))
        with again.scope():
            v = dl.Variable(1.0)
    with pytest.raises(ServerLostError, match="Parameter server 0"):
        waiting.fetch()
    with pytest.raises(ServerLostError):
        v.numpy()
