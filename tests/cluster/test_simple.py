"""SimpleClusterResolver: what was given comes back."""

from __future__ import annotations

import pytest

from distlab.cluster_resolver import ClusterSpec, SimpleClusterResolver
from distlab.errors import ArgumentTypeError, ClusterSpecError

CLUSTER = ClusterSpec({"worker": ["a:1", "b:2"], "ps": ["c:3"]})


def test_only_the_cluster_is_needed() -> None:
    resolver = SimpleClusterResolver(CLUSTER)
    assert resolver.cluster_spec() is CLUSTER
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == (None, None, None)
    assert (resolver.master(), resolver.environment) == ("", "")
    assert resolver.num_accelerators() == {}


def test_what_was_given_comes_back() -> None:
    resolver = SimpleClusterResolver(
        CLUSTER, "m:9", "worker", 1, "google", {"GPU": 4}, rpc_layer="grpc"
    )
    assert (resolver.task_type, resolver.task_id, resolver.environment) == ("worker", 1, "google")
    assert resolver.num_accelerators("ps", 0) == {"GPU": 4}
    assert resolver.master() == "grpc://m:9"


def test_a_named_task_and_rpc_layer_come_before_what_was_given() -> None:
    resolver = SimpleClusterResolver(CLUSTER, master="m:9", rpc_layer="grpc")
    assert resolver.master("ps", 0, "http") == "http://c:3"
    assert resolver.master("worker") == "grpc://m:9"
    with pytest.raises(ClusterSpecError, match="no task 5"):
        resolver.master("worker", 5)


def test_another_type_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match=r"must be a ClusterSpec, got {'worker'"):
        SimpleClusterResolver({"worker": ["a:1"]})  # type: ignore[arg-type]
