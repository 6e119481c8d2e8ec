"""Dask's workers as tasks of a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
    """What a client asks Dask's scheduler."""

    address = "tcp://here:1"
    limit: float | None = 25.0

    async def identity(self, n_workers: int) -> dict[str, Any]:
        del n_workers
        return {"workers": {"tcp://here:2": {"name": "worker-0"}}}

    async def events(self, topic: str) -> list[tuple[float, Any]]:
        if self.limit is None:
            return []
        timed_out = {"action": "worker-ttl-timed-out", "workers": [], "ttl": self.limit}
        return [(0.0, {"topic": topic}), (1.0, timed_out), (2.0, "another")]


class Client:
    """A client that no cluster of this process made."""

    cluster = None

    def __init__(self) -> None:
        self.scheduler = Scheduler()

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        """Hears nothing."""


@pytest.mark.parametrize(
    ("stimulus", "limit", "reason"),
    [
        ("check-worker-ttl-1700000000.0", 25.0, "no heartbeat for 25 s"),
        ("check-worker-ttl-1700000000.0", None, "no heartbeat"),
        ("handle-worker-cleanup-1700000000.0", 25.0, "connection closed"),
    ],
)
def test_why_a_worker_was_lost_is_what_the_scheduler_saw(
    stimulus: str, limit: float | None, reason: str
) -> None:
    async def lose() -> tuple[list[tuple[Task, str]], str]:
        client: Any = Client()
        client.scheduler.limit = limit
        members = Members(client, {Task("worker", 0): "worker-0"})
        seen: list[tuple[Task, str]] = []
        members.on_lost(lambda task, what: seen.append((task, what)))
        await members.start()
        about = {"action": "remove-worker", "worker": "tcp://here:2", "stimulus_id": stimulus}
        await members.told(about)
        await members.told(about)
        return seen, await members.why_lost(*seen[0])

    seen, why = asyncio.run(lose())
    assert [task for task, _ in seen] == [Task("worker", 0)]
    assert why == reason
