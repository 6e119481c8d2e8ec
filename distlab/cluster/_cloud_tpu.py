"""The addresses of a Cloud TPU's workers: from its own address, or from Google's API."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from distlab.cluster import _google_api
from distlab.errors import ClusterError, ClusterSpecError, UnsupportedError

_GRPC = "grpc://"
_PORT = "8470"


@dataclass(frozen=True)
class CloudTpu:
    """A Cloud TPU by name or by address.

    Attributes:
      name: Its name; or `grpc://` and the addresses of its workers, separated
        by commas; or `"local"`.
      zone: Its zone; None for the zone of this machine.
      project: Its project; None for the project of this machine.
      credentials: Credentials for `build_service`.
      service: A replacement for Google's client.
      discovery_url: URL of the API's description.
    """

    name: str
    zone: str | None
    project: str | None
    credentials: Any
    service: Any
    discovery_url: str | None

    def workers(self) -> list[str]:
        """Returns `host:port` of each worker, queried at each call."""
        if self.name.startswith(_GRPC):
            return [_address(entry) for entry in self.name.split(",")]
        described = self._describe()
        if described.get("state") != "READY":
            raise ClusterError(
                f'The TPU "{self.name}" must be READY; its state is "{described.get("state")}". '
                "Try again when it is."
            )
        endpoints = described.get("networkEndpoints", [described])
        return [f"{endpoint['ipAddress']}:{endpoint['port']}" for endpoint in endpoints]

    def _describe(self) -> dict[str, Any]:
        project = self.project or _google_api.metadata("project/project-id")
        zone = self.zone or _google_api.metadata("instance/zone").rpartition("/")[2]
        path = f"projects/{project}/locations/{zone}/nodes/{self.name}"
        url = os.environ.get("TPU_API_DISCOVERY_URL") or self.discovery_url
        service = self.service
        if service is None:
            service = _google_api.build_service("tpu", self.credentials, url)
        try:
            return dict(service.projects().locations().nodes().get(name=path).execute())
        except Exception as error:
            raise ClusterSpecError(
                f"Google does not know a TPU {path}: {error}. Check tpu=, zone= and project=."
            ) from error


def find(
    tpu: str | bytes | list[str] | None,
    *,
    zone: str | None,
    project: str | None,
    credentials: Any,
    service: Any,
    discovery_url: str | None,
) -> CloudTpu:
    """Returns the named TPU, by default the one that the environment names.

    The environment names one by KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME or
    TPU_CONFIG, in this order, as in TensorFlow.
    """
    if isinstance(tpu, list):
        if len(tpu) > 1:
            raise UnsupportedError(
                f"A TPUClusterResolver is for one TPU, got {len(tpu)}: {tpu}. Name one."
            )
        tpu = tpu[0]
    name = tpu.decode() if isinstance(tpu, bytes) else tpu
    for variable in ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"):
        name = name or os.environ.get(variable)
    if not name:
        node = json.loads(os.environ.get("TPU_CONFIG") or "{}")
        name = node.get("tpu_node_name")
        zone, project = zone or node.get("zone"), project or node.get("project")
    if not name:
        raise ClusterSpecError(
            'No TPU was named, and TPU_NAME is not set. Pass tpu="local" for TPUs of this '
            f'machine, or a name, or "{_GRPC}host:{_PORT}".'
        )
    return CloudTpu(name, zone, project, credentials, service, discovery_url)


def _address(entry: str) -> str:
    host, _, port = entry.removeprefix(_GRPC).partition(":")
    return f"{host}:{port or _PORT}"
