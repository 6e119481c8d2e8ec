"""The messages of each link, compared with counts of the program."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.events import Closures
from distlab.integrations.dask.cluster import ParameterServerCluster
from tests.patience import wait_until

WORKERS = 2
Counts = dict[tuple[int, str], int]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ParameterServerCluster]:
    with dl.launch(workers=WORKERS, parameter_servers=2) as made:
        yield made


def recorded(folder: Path, strategy: int) -> list[Closures]:
    with dl.Run.open(folder) as run:
        events = [event for event in run.events("closures") if isinstance(event, Closures)]
    return [event for event in events if event.strategy == strategy]


def on_all(folder: Path) -> int:
    """Returns the worker's number, as soon as this runs on all workers."""
    own = dl.coordinator.experimental_get_current_worker_index()
    folder.mkdir(exist_ok=True)
    (folder / str(own)).touch()
    wait_until(lambda: len(list(folder.iterdir())) == WORKERS, "the other workers")
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


def counted_messages(folder: Path) -> tuple[int, Counts]:
    counts: Any = sys.modules["counts_of_this_process"]
    return on_all(folder), dict(counts)


def on_each(coordinator: dl.coordinator.ClusterCoordinator, fn: Any, folder: Path) -> list[Any]:
    """Runs a function on each worker once, and returns the results."""
    results = [coordinator.schedule(fn, args=(folder,)) for _ in range(WORKERS)]
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
        link for event in recorded(tmp_path / "run", strategy.number) for link in event.links
    ):
        for verb, count in (("read", link.read_messages), ("update", link.change_messages)):
            assert count is not None
            shown[link.worker, link.server, verb] += count
        reads += link.reads
    assert dict(+shown) == expected
    assert sum(shown[worker, 1, "update"] for worker in range(WORKERS)) >= 40 * 3
    assert 0 < sum(count for (_, _, verb), count in shown.items() if verb == "read") <= reads
