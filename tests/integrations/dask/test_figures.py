"""Recorded events of workers that are processes, compared with counts of the program."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import ServerLostError
from distlab.events import Closures, TaskState
from distlab.folds import Folds
from distlab.integrations.dask.cluster import ParameterServerCluster
from distlab.page.facts.amounts import NOTHING
from distlab.page.facts.servers import server_facts
from distlab.page.servers import closure_rows
from distlab.variables.server_traffic import Link
from tests.patience import wait_until

STEPS = 100


@pytest.fixture(scope="module")
def cluster() -> Iterator[ParameterServerCluster]:
    with dl.launch(workers=2, parameter_servers=2) as made:
        yield made


def recorded(folder: Path, strategy: int) -> tuple[list[Closures], list[TaskState]]:
    """Returns the events of one coordinator."""
    with dl.Run.open(folder) as run:
        events = list(run.events())
    return (
        [e for e in events if isinstance(e, Closures) and e.strategy == strategy],
        [e for e in events if isinstance(e, TaskState) and e.strategy == strategy],
    )


def link_of(closures: list[Closures], server: int) -> Link:
    """Returns the figures of a server with all workers."""
    total = Link()
    for link in (link for event in closures for link in event.links if link.server == server):
        total.add(tuple(getattr(link, name) for name in Link.__dataclass_fields__))
    return total


def on_all(folder: Path) -> int:
    """Returns the worker's number, as soon as this runs on all workers."""
    own = dl.coordinator.experimental_get_current_worker_index()
    folder.mkdir(exist_ok=True)
    (folder / str(own)).touch()
    wait_until(lambda: len(list(folder.iterdir())) == 2, "the other worker")
    return int(own)


def count_messages(folder: Path) -> int:
    """Counts the messages of this worker's process to parameter servers."""
    from distlab.integrations.dask.servers import ServerCalls

    counts: Counter[tuple[int, str]] = Counter()
    ask = ServerCalls._ask

    async def counted(self: ServerCalls, server: int, verb: str, about: tuple[Any, ...]) -> Any:
        counts[server, verb] += 1
        return await ask(self, server, verb, about)

    ServerCalls._ask = counted  # type: ignore[method-assign]
    sys.modules["counts_of_this_process"] = counts  # type: ignore[assignment]
    return on_all(folder)


def counted_messages(folder: Path) -> tuple[int, dict[tuple[int, str], int]]:
    counts: Any = sys.modules["counts_of_this_process"]
    return on_all(folder), dict(counts)


def on_each(coordinator: dl.coordinator.ClusterCoordinator, fn: Any, folder: Path) -> list[Any]:
    """Runs a function on each worker once, and returns the results."""
    results = [coordinator.schedule(fn, args=(folder,)) for _ in range(2)]
    return [result.fetch() for result in results]


def test_messages_of_each_link_are_those_that_were_sent(
    cluster: ParameterServerCluster, tmp_path: Path
) -> None:
    strategy = dl.ParameterServerStrategy(cluster.resolver)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight, scale = dl.Variable(jnp.zeros((8, 4))), dl.Variable(1.0)

    def compiled() -> None:
        strategy.run(lambda: weight.assign_add(scale.value() * weight.value()))

    def direct() -> None:
        for _ in range(3):
            scale.assign_add(float(weight.value()[0, 0]) + float(scale.value()))

    on_each(coordinator, count_messages, tmp_path / "begin")
    with dl.record(tmp_path / "run", probe=False):
        for number in range(60):
            coordinator.schedule(direct if number % 3 else compiled)
        coordinator.join()
        scale.numpy()  # the coordinator's, and no worker's
    counted = on_each(coordinator, counted_messages, tmp_path / "end")
    expected = {
        (worker, server, verb): count
        for worker, counts in counted
        for (server, verb), count in counts.items()
    }
    shown: Counter[tuple[int, int, str]] = Counter()
    reads = 0
    for link in (
        link for event in recorded(tmp_path / "run", strategy.number)[0] for link in event.links
    ):
        for verb, count in (("read", link.read_messages), ("update", link.change_messages)):
            assert count is not None
            shown[link.worker, link.server, verb] += count
        reads += link.reads
    assert dict(+shown) == expected
    assert sum(shown[worker, 1, "update"] for worker in range(2)) >= 40 * 3
    assert 0 < sum(count for (_, _, verb), count in shown.items() if verb == "read") <= reads


def train(
    cluster: dl.cluster_resolver.DaskClusterResolver, kill: Callable[[], None], folder: Path
) -> int:
    """Records steps, and a worker that is lost and returns; returns the strategy's number."""
    strategy = dl.ParameterServerStrategy(cluster)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = dl.Variable(jnp.zeros((8, 4)))
        calls = dl.Variable(0.0)

    def step() -> None:
        def replica() -> None:
            weight.assign_add(jnp.ones((8, 4)) * weight.value())

        strategy.run(replica)
        calls.assign_add(1.0)

    def slow() -> None:
        time.sleep(0.05)

    def returned() -> bool:
        coordinator.schedule(slow)
        coordinator.join()
        return any(event.state == "returned" for event in recorded(folder, strategy.number)[1])

    with dl.record(folder, probe=False):
        for _ in range(STEPS):
            coordinator.schedule(step)
        coordinator.join()
        assert calls.numpy() == STEPS
        for _ in range(20):
            coordinator.schedule(slow)
        kill()
        coordinator.join()
        wait_until(returned, "another worker")
    return strategy.number


def test_closures_links_and_a_lost_worker_are_recorded(
    cluster: ParameterServerCluster, tmp_path: Path
) -> None:
    number = train(cluster.resolver, lambda: cluster.kill("worker", 1), tmp_path / "run")
    closures, tasks = recorded(tmp_path / "run", number)
    assert [(e.job, e.task, e.state, e.reason) for e in tasks] == [
        ("worker", 1, "lost", "process ended by SIGKILL"),
        ("worker", 1, "returned", ""),
    ]
    assert all(e.processes and (e.workers, e.servers) == (2, 2) for e in closures)
    workers = [one for event in closures for one in event.active]
    done, retried = (sum(getattr(one, name) for one in workers) for name in ("done", "retried"))
    assert done == sum(event.scheduled for event in closures) > STEPS + 20
    assert sum(one.begun for one in workers) == done + retried
    assert {one.worker for one in workers if one.retried} <= {1}
    ended: Counter[str] = Counter()
    for event in closures:
        ended.update(event.functions)
    assert sorted(ended.values()) == sorted([STEPS, done - STEPS])
    weight, calls = link_of(closures, 0), link_of(closures, 1)
    # Each worker that compiles the step reads once more.
    assert weight.reads - STEPS in {1, 2}
    assert weight.changes == STEPS
    assert (weight.read_bytes, weight.change_bytes) == (weight.reads * 128, STEPS * 128)
    assert (calls.reads, calls.changes, calls.change_bytes) == (0, STEPS, 4 * STEPS)


def run_with_a_stale_change(cluster: dl.cluster_resolver.DaskClusterResolver) -> int:
    """Has a worker change what others changed since it read it; returns the strategy's number."""
    strategy = dl.ParameterServerStrategy(cluster)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight, go_on = dl.Variable(0.0), dl.Variable(0.0)
        read = dl.Variable(0.0)

    def slow() -> float:
        value = weight.value()
        read.assign(1.0)
        wait_until(lambda: float(go_on.value()) == 1.0, "the others' changes")
        weight.assign(value + 1.0)
        weight.assign_add(1.0)  # its own change does not count
        return float(weight.value())

    def quick() -> None:
        weight.assign_add(1.0)  # without a read: none is behind

    result = coordinator.schedule(slow)
    wait_until(lambda: float(read.numpy()) == 1.0, "the slow function's read")
    for change in [coordinator.schedule(quick) for _ in range(3)]:
        change.get()
    go_on.assign(1.0)
    assert result.get() == 2.0
    coordinator.join()
    return strategy.number


def test_staleness_and_a_lost_server_are_recorded(
    cluster: ParameterServerCluster, tmp_path: Path
) -> None:
    with dl.record(tmp_path / "run", probe=False):
        number = run_with_a_stale_change(cluster.resolver)
        kept = dl.ParameterServerStrategy(cluster.resolver)
        coordinator = dl.coordinator.ClusterCoordinator(kept)
        cluster.kill("ps", 1)
        with pytest.raises(ServerLostError):
            coordinator.schedule(time.sleep, (60,)).get()

        def lost() -> bool:
            return bool(recorded(tmp_path / "run", kept.number)[1])

        wait_until(lost, "the lost server")
    closures, _ = recorded(tmp_path / "run", number)
    link = link_of(closures, 0)
    assert (link.used, link.behind, link.most_behind) == (2, 6, 3)
    assert (link.reads, link.changes) == (2, 6)
    assert link_of(closures, 1).used == 0
    _, tasks = recorded(tmp_path / "run", kept.number)
    assert [(e.job, e.task, e.state) for e in tasks] == [("ps", 1, "lost")]
    assert tasks[0].reason == "process ended by SIGKILL"
    with dl.Run.open(tmp_path / "run") as run:
        folds = Folds()
        folds.add([e for e in run.events() if getattr(e, "strategy", number) == number])
        stale = folds.columns("coordination")
        folds = Folds()
        folds.add(list(run.events()))
        columns = folds.columns("coordination")
    assert sorted(stale["worker_most_behind"]) == [0, 3]
    assert sorted(stale["worker_used"]) == [0, 2]
    assert closure_rows(stale)["most"] == [
        "3" if used else NOTHING for used in stale["worker_used"]
    ]
    assert (columns["task_name"], columns["task_state"]) == (["server 1"], ["lost"])
    marks = server_facts(columns, columns, 0, ended=True)["time_marks"]
    assert [re.sub(r"[\d.]+ s", "T s", text) for _, text in marks] == [
        "server 1 was lost at T s: process ended by SIGKILL"
    ]
