"""Several threads use one thing at once: each call counts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.data import Dataset
from tests.misuse.world import World
from tests.patience import LIMIT_SECONDS

pytestmark = pytest.mark.timeout(240)  # no misuse may hang

Call: TypeAlias = Callable[[], object]

THREADS: Final = 3
TIMES: Final = 8
EAGERLY: Final = dl.RunOptions(run_eagerly=True)


class Shared(NamedTuple):
    """One thing that several threads use.

    Attributes:
      calls: What the threads call, all at once; each by a thread of its own.
      found: Returns what is left when all are done.
      right: What that must be.
    """

    calls: list[Call]
    found: Callable[[], object]
    right: object


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(autouse=True)
def _many_switches() -> Iterator[None]:
    """Python changes threads 500 times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(calls: list[Call]) -> list[object]:
    """Returns what calls return, or raise, that are made at once by a thread each."""
    outcomes: list[object] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def work(number: int) -> None:
        start.wait(LIMIT_SECONDS)
        try:
            outcomes[number] = calls[number]()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test judges it
            outcomes[number] = error

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive(), "a thread hangs"
    return outcomes


def often(call: Call, times: int = TIMES) -> Call:
    """Returns a function that calls another one many times."""

    def repeat() -> None:
        for _ in range(times):
            call()

    return repeat


def taken(iterator: Iterator[Any], into: list[Any]) -> Call:
    """Returns a function that moves all elements of an iterator into a list."""
    return lambda: into.extend(iterator)


def _copies(variable: dl.Variable) -> list[Any]:
    return [np.asarray(copy.value()).tolist() for copy in variable.values]


# ---- variables and metrics


def _assignments(w: World) -> Shared:
    add = often(lambda: w.weights.assign_add(jnp.ones(2)))
    right = [[1.0 + THREADS * TIMES, 2.0 + THREADS * TIMES]] * 4
    return Shared([add] * THREADS, lambda: _copies(w.weights), right)


def _steps(w: World) -> Shared:
    step = often(lambda: w.strategy.run(lambda: w.weights.assign_add(jnp.ones(2)).value()))
    right = [[1.0 + THREADS * TIMES, 2.0 + THREADS * TIMES]] * 4
    return Shared([step] * THREADS, lambda: _copies(w.weights), right)


def _eager_steps(w: World) -> Shared:
    def step() -> None:
        w.own.assign_add(1.0)

    run = often(lambda: w.strategy.run(step, options=EAGERLY), 3)
    return Shared([run] * THREADS, lambda: _copies(w.own), [THREADS * 3.0] * 4)


def _a_metric(w: World) -> Shared:
    with w.strategy.scope():
        mean = dl.metrics.Mean()

    def step() -> None:
        mean.update_state(jnp.ones(1))

    calls = [
        often(lambda: mean.update_state(jnp.array([3.0, 3.0]))),
        often(lambda: w.strategy.run(step)),
    ]
    total = [6.0 * TIMES + 4.0 * TIMES, 2 * TIMES + 4 * TIMES]

    def found() -> list[float]:
        return sorted(float(variable.read_value()) for variable in mean.variables)

    return Shared(calls, found, sorted(total))


# ---- input


def _a_distributed_iterator(w: World) -> Shared:
    iterator = iter(w.strategy.experimental_distribute_dataset(Dataset.range(240).batch(4)))
    got: list[Any] = []

    def found() -> list[int]:
        return sorted(int(part[0]) for batch in got for part in batch.values)

    return Shared([taken(iterator, got)] * THREADS, found, list(range(240)))


def _a_coordinator(_: World) -> Shared:
    cluster = dl.ClusterSpec({"worker": ["threads-a:1", "threads-b:1"], "ps": ["threads-c:1"]})
    tasks = [("worker", 0), ("worker", 1), ("ps", 0)]
    servers = [dl.Server(cluster, job_name=job, task_index=index) for job, index in tasks]
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
    coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
    with coordinator.strategy.scope():
        total = dl.Variable(0.0)

    def work() -> None:
        for _ in range(TIMES):
            coordinator.schedule(lambda: total.assign_add(1.0).numpy())
        coordinator.join()

    def found() -> float:
        for server in servers:
            server.stop()
        return float(total)

    return Shared([work] * THREADS, found, float(THREADS * TIMES))


SHARED: Final[dict[str, Callable[[World], Shared]]] = {
    function.__name__.strip("_"): function
    for function in (
        _assignments,
        _steps,
        _eager_steps,
        _a_metric,
        _a_distributed_iterator,
        _a_coordinator,
    )
}


@pytest.mark.parametrize("name", SHARED)
def test_threads_that_share(world: World, name: str) -> None:
    shared = SHARED[name](world)
    outcomes = together(shared.calls)
    assert [outcome for outcome in outcomes if isinstance(outcome, BaseException)] == []
    assert shared.found() == shared.right
