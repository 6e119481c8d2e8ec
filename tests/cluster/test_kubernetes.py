"""KubernetesClusterResolver: the running pods, by label."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from distlab.cluster_resolver import KubernetesClusterResolver, KubernetesExecutableLocation
from distlab.errors import ClusterError, MissingExtraError
from tests.cluster.fake_clusters import Kubernetes, pod

CLIENT = Kubernetes(
    {
        "job-name=tensorflow": [pod("p1", "10.0.0.2"), pod("p0", "10.0.0.1")],
        "a": [pod("x", "10.0.1.1")],
        "pending": [pod("q", "10.0.0.9", phase="Pending")],
    }
)


def test_pods_are_sorted_by_name_and_named_by_their_own_ip() -> None:
    resolver = KubernetesClusterResolver(override_client=CLIENT)
    assert resolver.cluster_spec().as_dict() == {"worker": ["10.0.0.1:8470", "10.0.0.2:8470"]}


def test_selectors_follow_each_other() -> None:
    resolver = KubernetesClusterResolver(
        {"worker": ["a", "job-name=tensorflow"], "ps": ["a"]}, 99, None, CLIENT
    )
    assert resolver.cluster_spec().as_dict() == {
        "worker": ["10.0.1.1:99", "10.0.0.1:99", "10.0.0.2:99"],
        "ps": ["10.0.1.1:99"],
    }


def test_a_client_that_knows_only_the_hosts_ip_will_do() -> None:
    status = SimpleNamespace(phase="Running", host_ip="192.168.0.5")
    host_only = SimpleNamespace(metadata=SimpleNamespace(name="p"), status=status)
    resolver = KubernetesClusterResolver(
        {"w": ["l"]}, override_client=Kubernetes({"l": [host_only]})
    )
    assert resolver.cluster_spec().task_address("w", 0) == "192.168.0.5:8470"


def test_the_own_task_has_to_be_set() -> None:
    resolver = KubernetesClusterResolver(override_client=CLIENT)
    assert (resolver.task_type, resolver.task_id, resolver.master()) == (None, None, "")
    resolver.task_type, resolver.task_id = "worker", 1
    assert resolver.master() == "grpc://10.0.0.2:8470"
    assert resolver.master("worker", 0, "http") == "http://10.0.0.1:8470"


def test_a_pod_that_does_not_run_is_an_error() -> None:
    resolver = KubernetesClusterResolver({"worker": ["pending"]}, override_client=CLIENT)
    with pytest.raises(ClusterError, match=r'pod "q" is in phase "Pending"'):
        resolver.cluster_spec()


def test_without_a_client_the_package_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(MissingExtraError, match="pip install kubernetes"):
        KubernetesClusterResolver()


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The package kubernetes, as far as it is used; gives what was called."""
    calls: list[Any] = []

    class CoreV1Api:
        def list_pod_for_all_namespaces(self, label_selector: str, _request_timeout: Any) -> Any:
            calls.append(_request_timeout)
            return CLIENT.list_pod_for_all_namespaces(label_selector)

    contents: dict[str, dict[str, Any]] = {
        "kubernetes": {},
        "kubernetes.config": {
            "load_kube_config": lambda: calls.append("load_kube_config"),
        },
        "kubernetes.client": {"CoreV1Api": CoreV1Api},
    }
    for name, attributes in contents.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_kubeconfig_is_loaded_once_and_requests_have_limits(
    package: list[Any],
) -> None:
    location = KubernetesExecutableLocation.OFF_CLUSTER
    resolver = KubernetesClusterResolver(executable_location=location)
    assert resolver.cluster_spec() == resolver.cluster_spec()
    assert package == ["load_kube_config", (5, 10), (5, 10)]
