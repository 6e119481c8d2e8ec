"""GCEClusterResolver: the running machines of an instance group."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from distlab.cluster_resolver import GCEClusterResolver
from distlab.errors import ClusterSpecError, MissingExtraError
from tests.cluster.fake_clusters import ComputeService

SERVICE = ComputeService([{"i1": "10.0.0.3", "i2": "10.0.0.1"}, {}, {"i3": "10.0.0.2"}])


def resolver(**options: Any) -> GCEClusterResolver:
    return GCEClusterResolver("project", "zone", "group", 8470, service=SERVICE, **options)


def test_the_machines_of_all_pages_are_sorted_by_address() -> None:
    assert resolver().cluster_spec().as_dict() == {
        "worker": ["10.0.0.1:8470", "10.0.0.2:8470", "10.0.0.3:8470"]
    }


def test_the_own_task_is_the_first_worker_by_default() -> None:
    group = resolver()
    assert (group.task_type, group.task_id, group.rpc_layer) == ("worker", 0, "grpc")
    assert group.master() == "grpc://10.0.0.1:8470"
    assert group.master("worker", 2, "http") == "http://10.0.0.3:8470"


def test_index_and_rpc_layer_can_be_set() -> None:
    group = resolver(task_type="trainer")
    group.task_id, group.rpc_layer = 1, "x"
    assert group.master() == "x://10.0.0.2:8470"
    with pytest.raises(ClusterSpecError, match="no job 'worker'"):
        group.master("worker", 0)


def test_without_a_service_the_package_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "googleapiclient", None)
    with pytest.raises(MissingExtraError, match="pip install google-api-python-client"):
        GCEClusterResolver("project", "zone", "group", 8470)
