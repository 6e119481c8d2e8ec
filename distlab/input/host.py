"""The protocol of a strategy that distributed input needs."""

from __future__ import annotations

from typing import Protocol

from distlab.context.host import Host
from distlab.input.context import InputContext
from distlab.values.last_batches import LastBatches


class InputHost(Host, Protocol):
    """A host whose replicas read datasets."""

    @property
    def reads_per_replica(self) -> bool:
        """Whether each replica may read a dataset of its own."""

    @property
    def reads_here(self) -> bool:
        """Whether the calling thread may read the replicas' datasets."""

    @property
    def input_context(self) -> InputContext:
        """The argument of a dataset function on this worker."""

    @property
    def batch(self) -> LastBatches:
        """The last batches of distributed datasets."""
