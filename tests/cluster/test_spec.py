"""ClusterSpec: jobs, tasks and addresses."""

from __future__ import annotations

import pickle

import pytest

import distlab as dl
from distlab.errors import ArgumentTypeError, ClusterSpecError

CLUSTER = dl.ClusterSpec({"worker": ("a:1", "b:2"), "ps": {"0": "c:3"}})


def test_a_cluster_says_its_jobs_tasks_and_addresses() -> None:
    assert CLUSTER.jobs == ["worker", "ps"]
    assert CLUSTER.as_dict() == {"worker": ["a:1", "b:2"], "ps": ["c:3"]}
    assert CLUSTER.num_tasks("worker") == 2
    assert CLUSTER.task_indices("worker") == [0, 1]
    assert CLUSTER.task_address("worker", 1) == "b:2"


def test_a_job_with_missing_indices_stays_sparse() -> None:
    sparse = dl.ClusterSpec({"worker": {3: "d:4", 1: "b:2"}})
    assert sparse.as_dict() == {"worker": {1: "b:2", 3: "d:4"}}
    assert sparse.job_tasks("worker") == [None, "b:2", None, "d:4"]
    assert sparse.num_tasks("worker") == 2


def test_a_job_without_tasks_is_still_a_job() -> None:
    empty = dl.ClusterSpec({"ps": []})
    assert empty
    assert empty.as_dict() == {"ps": {}}
    assert empty.job_tasks("ps") == []


def test_clusters_are_compared_by_their_tasks() -> None:
    assert dl.ClusterSpec(CLUSTER) == CLUSTER
    assert pickle.loads(pickle.dumps(CLUSTER)) == CLUSTER
    assert CLUSTER == {"worker": {0: "a:1", 1: "b:2"}, "ps": {0: "c:3"}}
    assert dl.ClusterSpec({"worker": ["a:1"]}) != CLUSTER
    assert not dl.ClusterSpec({})


def test_a_copy_does_not_follow_the_dict_it_was_made_of() -> None:
    source = {"worker": ["a:1"]}
    cluster = dl.ClusterSpec(source)
    source["worker"].append("b:1")
    cluster.as_dict()["worker"] = []
    assert cluster.num_tasks("worker") == 1


@pytest.mark.parametrize("cluster", [3, None, [], {"w": 3}, {"w": "a:1"}, {"w": [1]}, {3: ["a"]}])
def test_what_is_no_cluster_is_refused(cluster: object) -> None:
    with pytest.raises(ArgumentTypeError):
        dl.ClusterSpec(cluster)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", ["x", -1, None])
def test_task_indices_are_whole_numbers_from_0(index: object) -> None:
    with pytest.raises(ClusterSpecError, match="whole numbers from 0"):
        dl.ClusterSpec({"worker": {index: "a:1"}})


def test_unknown_jobs_and_tasks_name_the_known_ones() -> None:
    with pytest.raises(ClusterSpecError, match=r"no job 'chief'.*\['ps', 'worker'\]"):
        CLUSTER.num_tasks("chief")
    with pytest.raises(ClusterSpecError, match=r"no task 2; its tasks are \[0, 1\]"):
        CLUSTER.task_address("worker", 2)
