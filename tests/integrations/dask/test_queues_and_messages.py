"""Each worker's own queue and the messages of each link, compared with counts of the program."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.events import Closures, WorkerClosures
from distlab.integrations.dask.cluster import ParameterServerCluster
from tests.patience import wait_until

WORKERS = 2
HELD = 10
SETTLED_NS = 500_000_000
"""After this time the workers have what they get ahead."""

Counts = dict[tuple[int, str], int]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ParameterServerCluster]:
    with dl.launch(workers=WORKERS, parameter_servers=2) as made:
        yield made


def told(folder: Path, strategy: int) -> list[Closures]:
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
    """Counts what this worker's process sends to parameter servers, by the port of each."""
    from distlab.integrations.dask.channel import Channel

    counts: Counter[tuple[int, str]] = Counter()
    send = Channel.send

    def counted(self: Channel, message: Any) -> None:
        send(self, message)
        if message[0] in ("read", "update"):
            counts[self._socket.getpeername()[1], message[0]] += 1

    Channel.send = counted  # type: ignore[method-assign]
    sys.modules["counts_of_this_process"] = counts  # type: ignore[assignment]
    return on_all(folder)


def counted_messages(folder: Path) -> tuple[int, Counts]:
    counts: Any = sys.modules["counts_of_this_process"]
    return on_all(folder), dict(counts)


def on_each(coordinator: dl.coordinator.ClusterCoordinator, fn: Any, folder: Path) -> list[Any]:
    """Runs a function on each worker once, and returns the results."""
    results = [coordinator.schedule(fn, args=(folder,)) for _ in range(WORKERS)]
    return [result.fetch() for result in results]


def test_messages_of_each_link_are_those_that_went_through_its_sockets(
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
    spec = cluster.resolver.cluster_spec()
    ports = [int(spec.task_address("ps", server).rpartition(":")[2]) for server in range(2)]
    expected = {
        (worker, ports.index(port), verb): count
        for worker, counts in counted
        for (port, verb), count in counts.items()
    }
    shown: Counter[tuple[int, int, str]] = Counter()
    reads = 0
    for link in (link for event in told(tmp_path / "run", strategy.number) for link in event.links):
        for verb, count in (("read", link.read_messages), ("update", link.change_messages)):
            assert count is not None
            shown[link.worker, link.server, verb] += count
        reads += link.reads
    assert dict(+shown) == expected
    assert sum(shown[worker, 1, "update"] for worker in range(WORKERS)) >= 40 * 3
    assert 0 < sum(count for (_, _, verb), count in shown.items() if verb == "read") <= reads


def hold(number: int, folder: Path) -> None:
    """Runs until the program lets it go."""
    own = dl.coordinator.experimental_get_current_worker_index()
    (folder / f"begun-{number}-{own}").touch()
    wait_until((folder / "go").exists, "the program")


def begun(folder: Path) -> Counter[int]:
    """Returns how many of the functions that are held each worker has begun."""
    return Counter(int(path.name.rpartition("-")[2]) for path in folder.glob("begun-*"))


def hold_until_some_are_queued(
    coordinator: dl.coordinator.ClusterCoordinator, recorded: Path, folder: Path, strategy: int
) -> tuple[Path, Closures]:
    """Returns where functions are held, and the event that tells of them.

    Workers get functions ahead where the last ones were short; a busy machine makes some long.
    """
    for attempt in range(20):
        place = folder / str(attempt)
        place.mkdir()
        (place / "go").touch()
        for number in range(8):
            coordinator.schedule(hold, args=(number, place))
        coordinator.join()
        for path in place.iterdir():
            path.unlink()
        for number in range(HELD):
            coordinator.schedule(hold, args=(number, place))
        wait_until(functools.partial(all_busy, place), "a function in each worker")
        settled = time.monotonic_ns() + SETTLED_NS
        event = event_after(recorded, strategy, settled)
        if any(one.queued for one in event.active):
            return place, event
        (place / "go").touch()
        coordinator.join()
    raise AssertionError("no worker got a function ahead")


def all_busy(place: Path) -> bool:
    return len(begun(place)) == WORKERS


def event_after(recorded: Path, strategy: int, time_ns: int) -> Closures:
    found: list[Closures] = []

    def there() -> bool:
        found[:] = [one for one in told(recorded, strategy) if one.time_ns > time_ns]
        return bool(found)

    wait_until(there, "an event")
    return found[0]


def of_each(event: Closures) -> dict[int, WorkerClosures]:
    return {one.worker: one for one in event.active}


def test_what_a_worker_has_queued_is_what_it_was_sent_and_has_not_begun(
    cluster: ParameterServerCluster, tmp_path: Path
) -> None:
    strategy = dl.ParameterServerStrategy(cluster.resolver)
    coordinator = dl.coordinator.ClusterCoordinator(strategy)
    recorded = tmp_path / "run"
    on_each(coordinator, on_all, tmp_path / "begin")
    with dl.record(recorded, probe=False):
        place, event = hold_until_some_are_queued(coordinator, recorded, tmp_path, strategy.number)
        held = of_each(event)
        queued = {worker: one.queued or 0 for worker, one in held.items()}
        assert begun(place) == {0: 1, 1: 1}
        assert {worker for worker, one in held.items() if one.running} == {0, 1}
        assert sum(queued.values()) == HELD - WORKERS - event.waiting
        before = sum(one.retried for one in of_worker(recorded, strategy.number, 1))
        os.kill(cluster.pid("worker", 1), 9)
        # What it had was sent to it: all of that goes back to the queue.
        wait_until(
            lambda: (
                sum(one.retried for one in of_worker(recorded, strategy.number, 1))
                == before + queued[1] + 1
            ),
            "its functions in the queue",
        )
        (place / "go").touch()
        coordinator.join()
    assert len({path.name.split("-")[1] for path in place.glob("begun-*")}) == HELD
    last = told(recorded, strategy.number)[-1]
    assert {one.queued for one in last.active} <= {0}
    assert last.waiting == 0


def of_worker(recorded: Path, strategy: int, worker: int) -> list[WorkerClosures]:
    return [
        one for event in told(recorded, strategy) for one in event.active if one.worker == worker
    ]
