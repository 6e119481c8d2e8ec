"""What a recording tells of workers that are processes, compared with counts of the program."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp

import distlab as dl
from distlab.events import Closures, TaskState
from distlab.variables.server_traffic import Link
from tests.patience import wait_until

STEPS = 100


def told(folder: Path, strategy: int) -> tuple[list[Closures], list[TaskState]]:
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
        return any(event.state == "returned" for event in told(folder, strategy.number)[1])

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


def test_closures_links_and_a_lost_worker_are_told(tmp_path: Path) -> None:
    with dl.launch(workers=2, parameter_servers=2) as cluster:
        number = train(cluster.resolver, lambda: cluster.kill("worker", 1), tmp_path / "run")
    closures, tasks = told(tmp_path / "run", number)
    # The end of the cluster is no loss.
    assert [(e.job, e.task, e.state) for e in tasks] == [
        ("worker", 1, "lost"),
        ("worker", 1, "returned"),
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
    assert sorted(ended.values()) == sorted([STEPS, done + retried - STEPS])
    weight, calls = link_of(closures, 0), link_of(closures, 1)
    # Each worker that compiles the step reads once more.
    assert weight.reads - STEPS in {1, 2}
    assert weight.changes == STEPS
    assert (weight.read_bytes, weight.change_bytes) == (weight.reads * 128, STEPS * 128)
    assert (calls.reads, calls.changes, calls.change_bytes) == (0, STEPS, 4 * STEPS)
