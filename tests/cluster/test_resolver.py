"""ClusterResolver: what a class of one's own gets from it."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import pytest

from distlab.cluster_resolver import ClusterResolver, ClusterSpec


class Mine(ClusterResolver):
    def cluster_spec(self) -> ClusterSpec:
        return ClusterSpec({"worker": ["a:1", "b:1"]})

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        if task_type is None or task_id is None:
            return rpc_layer or ""
        return self.cluster_spec().task_address(task_type, task_id)


def test_nothing_is_known_about_the_process_by_default() -> None:
    mine = Mine()
    assert (mine.task_type, mine.task_id, mine.rpc_layer, mine.environment) == (
        None,
        None,
        None,
        "",
    )


def test_cpu_devices_are_no_accelerators() -> None:
    assert Mine().num_accelerators() == {}
    assert Mine().num_accelerators()["GPU"] == 0


def test_only_the_own_tasks_accelerators_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, cpu = SimpleNamespace(platform="gpu"), SimpleNamespace(platform="cpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [gpu, cpu, gpu])
    mine = Mine()
    mine.task_type, mine.task_id = "worker", 1
    assert mine.num_accelerators() == {"GPU": 2}
    assert mine.num_accelerators("worker", 1) == {"GPU": 2}
    assert mine.num_accelerators("worker", 0) == {}


def test_accelerators_of_an_unknown_task_are_an_error() -> None:
    with pytest.raises(ValueError, match="no task 7"):
        Mine().num_accelerators("worker", 7)
