"""TFConfigClusterResolver: the environment variable, read each time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from distlab.cluster_resolver import TFConfigClusterResolver
from distlab.errors import ArgumentTypeError, ClusterSpecError

CONFIG = {
    "cluster": {"worker": ["a:1", "b:2"], "ps": ["c:3"]},
    "task": {"type": "worker", "index": 1},
    "rpc_layer": "grpc",
}


def configure(monkeypatch: pytest.MonkeyPatch, config: Any) -> TFConfigClusterResolver:
    monkeypatch.setenv("TF_CONFIG", config if isinstance(config, str) else json.dumps(config))
    return TFConfigClusterResolver()


def test_the_cluster_and_the_own_task_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = configure(monkeypatch, CONFIG)
    assert resolver.cluster_spec().as_dict() == CONFIG["cluster"]
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("worker", 1, "grpc")
    assert (resolver.master(), resolver.master("ps", 0)) == ("grpc://b:2", "grpc://c:3")
    assert resolver.num_accelerators() == {}


def test_without_the_variable_there_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    resolver = TFConfigClusterResolver()
    assert not resolver.cluster_spec()
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == (None, None, None)
    assert (resolver.master(), resolver.environment) == ("", None)


def test_it_is_read_again_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = configure(monkeypatch, CONFIG)
    configure(monkeypatch, {"cluster": {"chief": ["z:1"]}, "task": {"type": "chief", "index": "0"}})
    assert (resolver.task_type, resolver.task_id) == ("chief", 0)
    assert resolver.cluster_spec().jobs == ["chief"]


def test_arguments_and_setters_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, CONFIG)
    resolver = TFConfigClusterResolver("ps", 0, "http", "e")
    assert (resolver.master(), resolver.environment) == ("http://c:3", "e")
    resolver.task_type, resolver.task_id, resolver.rpc_layer = "worker", 0, "grpc"
    assert resolver.master() == "grpc://a:1"


def test_a_session_master_is_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configure(monkeypatch, {**CONFIG, "session_master": "sm:1"}).master() == "sm:1"


def test_a_cluster_of_one_has_a_local_master(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configure(monkeypatch, {"cluster": {"worker": ["a:1"]}}).master() == ""


def test_several_tasks_and_no_own_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = configure(monkeypatch, {"cluster": CONFIG["cluster"]})
    with pytest.raises(ClusterSpecError, match=r"but not which of their tasks.*Add \"task\""):
        resolver.master()
    with pytest.raises(ClusterSpecError):
        resolver.num_accelerators()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_what_can_not_be_read_says_what_belongs_there(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    with pytest.raises(ClusterSpecError, match="TF_CONFIG"):
        _ = configure(monkeypatch, text).task_id


def test_a_cluster_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentTypeError, match="tasks of job 'worker'"):
        configure(monkeypatch, {"cluster": {"worker": 3}}).cluster_spec()
