"""What the code below a strategy needs of it."""

from __future__ import annotations

from typing import Protocol

from distlab.devices.layouts import Layout
from distlab.devices.mesh import ReplicaMesh


class Host(Protocol):
    """Who runs replicas and holds variables: a strategy, as the code below it sees it."""

    @property
    def distributed(self) -> bool:
        """Whether values are distributed at all: false for the default strategy alone."""

    @property
    def number(self) -> int:
        """Number in this process; events name it."""

    @property
    def mesh(self) -> ReplicaMesh:
        """The replicas' devices."""

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas a step runs on."""

    @property
    def device_names(self) -> tuple[str, ...]:
        """The device of each replica, in replica order."""

    def variable_layout(self, *, per_replica: bool) -> Layout:
        """Returns where the copies of a new variable lie.

        Args:
          per_replica: Whether each replica has a value of its own (ON_READ).
        """
