"""The environment of a worker."""

from __future__ import annotations

import pytest

import distlab as dl
from distlab.launching import environment


def test_the_resolver_reads_what_a_worker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = environment.for_worker(2, ["a:1", "b:2", "c:3"], inherited={})
    monkeypatch.setenv("TF_CONFIG", told["TF_CONFIG"])
    resolver = dl.cluster_resolver.TFConfigClusterResolver()
    assert resolver.cluster_spec().as_dict() == {"worker": ["a:1", "b:2", "c:3"]}
    assert (resolver.task_type, resolver.task_id) == ("worker", 2)


def test_variables_of_an_outer_cluster_are_not_kept() -> None:
    outer = environment.for_worker(0, ["a:1"], inherited={}, coordinator="x:1", devices=4)
    inner = environment.for_worker(1, ["b:1", "c:1"], inherited={**outer, "HOME": "/me"})
    assert inner["HOME"] == "/me"
    assert {environment.COORDINATOR, environment.DEVICES} & set(inner) == set()
    assert inner[environment.GENERATION] == "0"
