"""What combining the replicas' values needs of a strategy."""

from __future__ import annotations

from typing import Protocol

from distlab.collectives.cross_device_ops import CrossDeviceOps
from distlab.context.host import Host


class CollectiveHost(Host, Protocol):
    """A host that has an algorithm for adding up across devices."""

    @property
    def cross_device_ops(self) -> CrossDeviceOps:
        """How it adds up the replicas' values."""
