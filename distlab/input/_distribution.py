"""The state that a distributed dataset shares with its iterators."""

from __future__ import annotations

from typing import Any, NamedTuple

from distlab.input._preview import Previewer
from distlab.input._steps import Steps
from distlab.input.host import InputHost
from distlab.input.options import InputOptions
from distlab.input.spec import per_replica_spec


class Distribution(NamedTuple):
    """The steps of a distributed dataset, and the strategy whose replicas receive them.

    Attributes:
      number: The dataset's number in this process; events name it.
      steps: The source of its steps.
      host: The strategy whose replicas receive its elements.
      options: The options with which it was distributed.
      previewer: Emits previews of its examples.
      source: File and line of the call that distributed it.
      name: The name that its options give it, else empty.
    """

    number: int
    steps: Steps
    host: InputHost
    options: InputOptions
    previewer: Previewer
    source: str
    name: str

    @property
    def element_spec(self) -> Any:
        """The nest of `PerReplicaSpec` of its elements; with one local replica, plain specs."""
        return per_replica_spec(self.steps.local_spec, len(self.host.mesh.local_replicas))
