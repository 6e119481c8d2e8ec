"""The protocol of a strategy for collectives."""

from __future__ import annotations

from typing import Protocol

from distlab.collectives.cross_device_ops import CrossDeviceOps
from distlab.context.host import Host


class CollectiveHost(Host, Protocol):
    """A host with an algorithm that sums values across devices."""

    @property
    def cross_device_ops(self) -> CrossDeviceOps:
        """The algorithm that sums the replicas' values."""
