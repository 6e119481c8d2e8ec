"""Stand-ins for what Slurm, Kubernetes and Google Cloud say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest


def set_environment(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


def pod(name: str, ip: str, phase: str = "Running", host: str = "192.168.0.1") -> Any:
    """A pod as the Kubernetes client describes it."""
    return SimpleNamespace(
        metadata=SimpleNamespace(name=name),
        status=SimpleNamespace(phase=phase, pod_ip=ip, host_ip=host),
    )


@dataclass
class Kubernetes:
    """A client that knows the pods of some label selectors."""

    pods: dict[str, list[Any]]

    def list_pod_for_all_namespaces(self, label_selector: str) -> Any:
        return SimpleNamespace(items=self.pods[label_selector])


@dataclass
class Request:
    """A request to Google's API, which is answered when it is executed."""

    answer: Callable[[], dict[str, Any]]

    def execute(self) -> dict[str, Any]:
        return self.answer()


@dataclass
class ComputeService:
    """Google's compute API: pages of instances, with the parameter names of the real one."""

    pages: list[dict[str, str]]
    group: str = "group"

    def instanceGroups(self) -> Any:  # noqa: N802
        return self

    def instances(self) -> Any:
        return self

    def listInstances(  # noqa: N802
        self,
        *,
        project: str,
        zone: str,
        instanceGroup: str,  # noqa: N803
        body: dict[str, str],
        orderBy: str,  # noqa: N803
    ) -> Request:
        assert (project, zone, instanceGroup) == ("project", "zone", self.group)
        assert (body, orderBy) == ({"instanceState": "RUNNING"}, "name")
        return self._page(0)

    def listInstances_next(  # noqa: N802
        self,
        *,
        previous_request: Request,
        previous_response: dict[str, Any],
    ) -> Request | None:
        assert previous_request.execute() == previous_response
        following = previous_response["page"] + 1
        return self._page(following) if following < len(self.pages) else None

    def get(self, *, project: str, zone: str, instance: str) -> Request:
        assert (project, zone) == ("project", "zone")
        ips = {name: ip for page in self.pages for name, ip in page.items()}
        return Request(lambda: {"networkInterfaces": [{"networkIP": ips[instance]}]})

    def _page(self, number: int) -> Request:
        instances = [{"instance": f"https://host/path/{name}"} for name in self.pages[number]]
        # The real API leaves `items` out when there are none.
        items = {"items": instances} if instances else {}
        return Request(lambda: {"page": number, **items})


@dataclass
class TpuService:
    """Google's TPU API: what it says about one node."""

    path: str
    description: dict[str, Any]

    def projects(self) -> Any:
        return self

    def locations(self) -> Any:
        return self

    def nodes(self) -> Any:
        return self

    def get(self, name: str) -> Request:
        if name != self.path:
            raise LookupError(name)
        return Request(lambda: self.description)
