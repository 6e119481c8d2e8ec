"""Dataset.load: the elements that `save` wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distlab.data.plan.engine import Stream
from distlab.data.plan.plan import Node, Opener, Reading
from distlab.data.plan.replay import ReplayedElements
from distlab.data.transforms.cache_file import CacheFile


@dataclass(frozen=True, eq=False)
class Saved(Node):
    """The elements in a file.

    Attributes:
      file: The file.
      element_spec: The nest of specs of an element.
      size: The number of elements.
    """

    file: CacheFile
    element_spec: Any
    size: int

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns itself: it has no inputs."""
        assert not inputs
        return self

    @property
    def spec(self) -> Any:
        """The specs of an element."""
        return self.element_spec

    @property
    def cardinality(self) -> int:
        """The number of elements."""
        return self.size

    def read(self, reading: Reading, open_input: Opener) -> Stream:  # noqa: ARG002
        """Opens the elements."""
        return ReplayedElements(lambda: self.file.elements(self.element_spec))
