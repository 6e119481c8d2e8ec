"""Workers and parameter servers in other processes, as a `ParameterServerStrategy` knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from distlab.variables.remote_storage import ValueServers


class RemoteTasks(Protocol):
    """The tasks of a cluster, as one of its processes knows them."""

    @property
    def workers(self) -> int:
        """The number of workers."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The name of each parameter server."""

    @property
    def values(self) -> ValueServers:
        """The variables' values."""


class CoordinatedTasks(RemoteTasks, Protocol):
    """The tasks of a cluster, as the coordinator's process knows them."""

    def attach(self, strategy: Any) -> None:
        """Notes the strategy whose tasks these are."""

    def sent(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns a closure as it travels to a worker."""

    def serve(self, queue: Any) -> Callable[[], None]:
        """Runs what a coordinator's queue holds, and returns what ends that."""


Connect: TypeAlias = Callable[[Any], CoordinatedTasks | None]
"""Connects to the tasks that an argument of ParameterServerStrategy describes; None: to none."""

connectors: Final[list[Connect]] = []
"""Functions of integrations; the first that knows an argument connects."""


def connected(cluster: Any) -> CoordinatedTasks | None:
    """Returns the tasks that are described; None when they are threads of this process."""
    for connect in connectors:
        tasks = connect(cluster)
        if tasks is not None:
            return tasks
    return None
