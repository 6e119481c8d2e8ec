"""Dask's workers as tasks of a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from distributed.core import ConnectionPool

from distlab.errors import ClusterError
from distlab.integrations.dask.members import Members, Task, names_in_order


def test_workers_named_after_tasks_are_these() -> None:
    assert names_in_order(["ps-0", "worker-1", "worker-0"], 2, 1) == {
        Task("worker", 0): "worker-0",
        Task("worker", 1): "worker-1",
        Task("ps", 0): "ps-0",
    }


def test_other_names_are_tasks_in_order() -> None:
    assert names_in_order([10, 2, 0], 2, 1) == {
        Task("worker", 0): 0,
        Task("worker", 1): 2,
        Task("ps", 0): 10,
    }


def test_too_few_workers_are_named() -> None:
    with pytest.raises(ClusterError, match=r"2 workers and 1 parameter servers.*has 1 workers"):
        names_in_order(["only"], 2, 1)


class Scheduler:
    """Dask's scheduler, as a client knows it."""

    address = "tcp://here:1"

    async def identity(self, n_workers: int) -> dict[str, Any]:
        del n_workers
        return {"workers": {"tcp://here:2": {"name": "worker-0"}}}


class Client:
    """A client that no cluster of this process made."""

    cluster = None

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.rpc = ConnectionPool()

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        """Hears nothing."""


class Seen:
    """Losses, in order."""

    def __init__(self) -> None:
        self.losses: list[tuple[Task, str]] = []

    def note(self, task: Task, seen: str) -> None:
        self.losses.append((task, seen))


@pytest.mark.parametrize(
    ("stimulus", "reason"),
    [
        ("check-worker-ttl-1700000000.0", "no heartbeat"),
        ("handle-worker-cleanup-1700000000.0", "connection closed"),
    ],
)
def test_a_worker_is_lost_for_the_reason_of_the_scheduler(stimulus: str, reason: str) -> None:
    async def lose() -> tuple[list[tuple[Task, str]], str]:
        client: Any = Client()
        members = Members(client, {Task("worker", 0): "worker-0"})
        seen = Seen()
        members.on_lost(seen.note)
        await members.start()
        about = {"action": "remove-worker", "worker": "tcp://here:2", "stimulus_id": stimulus}
        await members.hear(about)
        await members.hear(about)
        return seen.losses, await members.why_lost(*seen.losses[0])

    seen, why = asyncio.run(lose())
    assert [task for task, _ in seen] == [Task("worker", 0)]
    assert why == reason
