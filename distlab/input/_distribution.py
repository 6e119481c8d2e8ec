"""What a distributed dataset and its iterators share."""

from __future__ import annotations

from typing import Any, NamedTuple

from distlab.input._preview import Previewer
from distlab.input._step import Steps
from distlab.input.host import InputHost
from distlab.input.options import InputOptions
from distlab.input.spec import per_replica_spec


class Distribution(NamedTuple):
    """Which steps reach whose replicas, and how.

    Attributes:
      number: The dataset's number in this process; events name it.
      steps: Where its steps come from.
      host: The strategy whose replicas it feeds.
      options: How it was distributed.
      previewer: Shows its examples on the pages, each once.
    """

    number: int
    steps: Steps
    host: InputHost
    options: InputOptions
    previewer: Previewer

    @property
    def element_spec(self) -> Any:
        """The nest of `PerReplicaSpec` of its elements; with one replica, plain specs."""
        return per_replica_spec(self.steps.local_spec, self.host.mesh.replicas)
