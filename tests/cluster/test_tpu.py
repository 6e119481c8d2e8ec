"""TPUClusterResolver: a Cloud TPU by name or address, or this machine's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from distlab.cluster_resolver import TPUClusterResolver
from distlab.errors import (
    ClusterError,
    ClusterSpecError,
    DeviceError,
    MissingExtraError,
    UnsupportedError,
)
from tests.cluster.fake_clusters import TpuService, set_environment

PATH = "projects/p/locations/z/nodes/t"
READY = {"state": "READY", "networkEndpoints": [{"ipAddress": "10.1", "port": 8470}]}


@pytest.fixture(autouse=True)
def _no_tpu_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["TPU_NAME", "TPU_CONFIG", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "GCE_METADATA_HOST"]
    set_environment(monkeypatch, dict.fromkeys(names))


def with_tpus(monkeypatch: pytest.MonkeyPatch, *processes: int) -> None:
    devices = [SimpleNamespace(platform="tpu", process_index=p) for p in processes]
    monkeypatch.setattr(jax, "devices", lambda: devices)


def test_tpus_of_this_machine_have_no_addresses() -> None:
    local = TPUClusterResolver("local")
    assert (local.cluster_spec().as_dict(), local.master()) == ({}, "")
    assert (local.task_type, local.task_id, local.environment) == ("worker", 0, "")
    assert local.num_accelerators() == {"TPU": 0}


def test_addresses_are_taken_as_they_are() -> None:
    tpu = TPUClusterResolver("grpc://10.0.0.1:1234,grpc://10.0.0.2", job_name="j")
    assert tpu.cluster_spec().as_dict() == {"j": ["10.0.0.1:1234", "10.0.0.2:8470"]}
    assert tpu.get_master() == tpu.master() == "grpc://10.0.0.1:1234"
    assert tpu.master("j", 1, "http") == "grpc://10.0.0.2:8470"
    assert tpu.get_job_name() == "j"
    assert tpu.get_coordination_service_leader() == "/job:j/task:0"


def test_a_name_is_asked_of_google() -> None:
    tpu = TPUClusterResolver("t", "z", "p", service=TpuService(PATH, READY))
    assert tpu.cluster_spec().as_dict() == {"worker": ["10.1:8470"]}


def test_a_tpu_of_one_address_and_a_coordinator() -> None:
    described = {"state": "READY", "ipAddress": "10.7", "port": "1"}
    tpu = TPUClusterResolver(
        "t", "z", "p", "worker", "main", "h:2", service=TpuService(PATH, described)
    )
    assert tpu.cluster_spec().as_dict() == {"worker": ["10.7:1"], "main": ["h:2"]}


def test_the_environment_may_name_the_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    config = '{"tpu_node_name": "t", "project": "p", "zone": "z"}'
    monkeypatch.setenv("TPU_CONFIG", config)
    by_config = TPUClusterResolver(service=TpuService(PATH, READY))
    assert by_config.master() == "grpc://10.1:8470"
    monkeypatch.setenv("TPU_NAME", "grpc://10.2")
    assert TPUClusterResolver().master() == "grpc://10.2:8470"
    monkeypatch.setenv("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://10.3")
    assert TPUClusterResolver().master() == "grpc://10.3:8470"
    assert TPUClusterResolver("local").master() == ""


class Metadata(BaseHTTPRequestHandler):
    """Google's metadata server."""

    def do_GET(self) -> None:
        answers = {"project/project-id": b"p", "instance/zone": b"projects/12/zones/z"}
        answer = answers.get(self.path.removeprefix("/computeMetadata/v1/"))
        known = answer is not None and self.headers["Metadata-Flavor"] == "Google"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(answer or b"")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Says nothing."""


@pytest.fixture
def metadata_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.server_port}")
        yield
        server.shutdown()
        thread.join(60)


@pytest.mark.usefixtures("metadata_server")
def test_zone_and_project_are_this_machines_by_default() -> None:
    tpu = TPUClusterResolver("t", service=TpuService(PATH, READY))
    assert tpu.cluster_spec().num_tasks("worker") == 1


def test_outside_of_google_cloud_zone_and_project_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        closed = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("GCE_METADATA_HOST", closed)
    with pytest.raises(ClusterError, match=r"is not in Google Cloud\. Pass project= and zone="):
        TPUClusterResolver("t").cluster_spec()


def test_a_tpu_that_is_not_ready_or_not_known_is_an_error() -> None:
    creating = TpuService(PATH, {"state": "CREATING"})
    with pytest.raises(ClusterError, match='its state is "CREATING"'):
        TPUClusterResolver("t", "z", "p", service=creating).cluster_spec()
    with pytest.raises(
        ClusterSpecError, match="does not know a TPU projects/p/locations/z/nodes/u"
    ):
        TPUClusterResolver("u", "z", "p", service=creating).cluster_spec()


def test_without_a_service_the_package_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "googleapiclient", None)
    with pytest.raises(MissingExtraError, match="pip install google-api-python-client"):
        TPUClusterResolver("t", "z", "p").cluster_spec()


def test_a_tpu_has_to_be_named() -> None:
    with pytest.raises(ClusterSpecError, match=r'No TPU was named.*tpu="local"'):
        TPUClusterResolver()
    with pytest.raises(UnsupportedError, match="for one TPU, got 2"):
        TPUClusterResolver(["a", "b"])


def test_tpu_devices_are_counted_by_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with_tpus(monkeypatch, 0, 0, 1, 1)
    tpu = TPUClusterResolver.connect("local")
    assert tpu.num_accelerators() == {"TPU": 2}
    metadata = tpu.get_tpu_system_metadata()
    assert (metadata.num_cores, metadata.num_hosts, metadata.num_of_cores_per_host) == (4, 2, 2)


def test_hosts_with_different_numbers_of_tpus_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with_tpus(monkeypatch, 0, 0, 1)
    with pytest.raises(ClusterError, match=r"\{0: 2, 1: 1\}"):
        TPUClusterResolver("local").num_accelerators()


def test_connecting_needs_a_tpu() -> None:
    with pytest.raises(DeviceError, match="JAX sees none"):
        TPUClusterResolver.connect("local")
