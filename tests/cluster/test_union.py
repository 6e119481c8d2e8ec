"""UnionResolver: the tasks of all, the rest of the first."""

from __future__ import annotations

from typing import Any

import pytest

from distlab.cluster_resolver import ClusterSpec, SimpleClusterResolver, UnionResolver
from distlab.errors import ClusterSpecError, DuplicateTaskError


def simple(tasks: dict[str, Any], **options: Any) -> SimpleClusterResolver:
    return SimpleClusterResolver(ClusterSpec(tasks), **options)


def test_lists_of_the_same_job_follow_each_other() -> None:
    union = UnionResolver(simple({"worker": ["a", "b"]}), simple({"worker": ["c"], "ps": ["d"]}))
    assert union.cluster_spec().as_dict() == {"worker": ["a", "b", "c"], "ps": ["d"]}


def test_one_sparse_job_makes_all_keep_their_indices() -> None:
    union = UnionResolver(simple({"worker": ["a"]}), simple({"worker": {1: "b", 4: "c"}}))
    assert union.cluster_spec().as_dict() == {"worker": {0: "a", 1: "b", 4: "c"}}


def test_an_index_that_two_have_is_an_error() -> None:
    union = UnionResolver(simple({"worker": {3: "a"}}), simple({"worker": {3: "b", 5: "c"}}))
    with pytest.raises(DuplicateTaskError, match=r"^Job 'worker' has the tasks \[3\] in more"):
        union.cluster_spec()


def test_the_rest_is_the_first_ones() -> None:
    first = simple(
        {"worker": ["a"]},
        master="m1",
        task_type="worker",
        task_id=2,
        rpc_layer="grpc",
        environment="e",
        num_accelerators={"GPU": 2},
    )
    union = UnionResolver(first, simple({"ps": ["b"]}, master="m2", task_type="ps"))
    assert (union.task_type, union.task_id, union.rpc_layer) == ("worker", 2, "grpc")
    assert (union.environment, union.num_accelerators()) == ("e", {"GPU": 2})
    assert (union.master(), union.master("ps", 0)) == ("grpc://m1", "b")


def test_overrides_come_before_the_first_one_even_zero() -> None:
    first = simple({"worker": ["a"]}, task_type="worker", task_id=2)
    union = UnionResolver(first, task_type="ps", task_id=0, rpc_layer="x")
    assert (union.task_type, union.task_id, union.rpc_layer) == ("ps", 0, "x")
    assert union.master("worker", 0) == "x://a"
    union.task_type, union.task_id, union.rpc_layer = "chief", 1, "y"
    assert (union.task_type, union.task_id, union.rpc_layer) == ("chief", 1, "y")


def test_no_resolver_is_refused() -> None:
    with pytest.raises(ClusterSpecError, match="at least one"):
        UnionResolver()
