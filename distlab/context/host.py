"""The protocol of a strategy for the packages below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from distlab.devices.layouts import Layout, NewVariable
from distlab.devices.mesh import ReplicaMesh


class Host(Protocol):
    """The owner of replicas and variables: a strategy."""

    @property
    def distributed(self) -> bool:
        """True where values are distributed: under all strategies but the default one."""

    @property
    def number(self) -> int:
        """The strategy's number in this process, which events carry."""

    @property
    def mesh(self) -> ReplicaMesh:
        """The replicas' devices."""

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas that run a step."""

    @property
    def device_names(self) -> tuple[str, ...]:
        """The device of each replica, in replica order."""

    @property
    def keeps_one_copy(self) -> bool:
        """True where all replicas share one copy of each variable, whatever its synchronization."""

    def variable_layout(self, *, per_replica: bool, of: NewVariable | None = None) -> Layout:
        """Returns the layout of a new variable."""

    @property
    def value_servers(self) -> Any:
        """The parameter servers of other processes that hold variables, or None."""

    def make_variable(
        self, make: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]
    ) -> Any:
        """Returns a new variable, whole or in parts."""
