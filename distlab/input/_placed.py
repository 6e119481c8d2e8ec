"""Steps put on the devices, one after another."""

from __future__ import annotations

import time
from typing import Any, NamedTuple, Protocol, final

import jax

from distlab.data._engine import State
from distlab.devices.mesh import ReplicaMesh
from distlab.input._place import place
from distlab.input._step import Reader, Step


class Placed(NamedTuple):
    """A step on the devices.

    Attributes:
      value: the element, with a `PerReplica` at each leaf.
      leaves: its leaves.
      step: what it was made of.
      wait_ns: nanoseconds the caller waited for it to be read.
      transfer_ns: nanoseconds the caller spent putting it on the devices.
    """

    value: Any
    leaves: list[Any]
    step: Step
    wait_ns: int
    transfer_ns: int


class Feed(Protocol):
    """What an iterator takes its steps from; named as Grain names its iterators' methods."""

    def __next__(self) -> Placed:
        """Returns the next step; raises `StopIteration` at the end, and from then on."""

    def get_state(self) -> State:
        """Returns the position after the last step."""

    def set_state(self, state: State) -> None:
        """Goes to a position."""

    def close(self) -> None:
        """Stops reading ahead."""


@final
class DirectFeed:
    """Reads and places a step when it is asked for.

    Args:
      reader: where steps are read.
      mesh: the replicas' devices.
      fetch: whether to put batches on the devices, or leave them on the host.
    """

    def __init__(self, reader: Reader, mesh: ReplicaMesh, *, fetch: bool) -> None:
        self._reader, self._mesh, self._fetch = reader, mesh, fetch

    def __next__(self) -> Placed:
        """Reads and places the next step."""
        asked = time.monotonic_ns()
        step = self._reader.read()
        got = time.monotonic_ns()
        leaves = [place(parts, self._mesh, fetch=self._fetch) for parts in step.columns]
        value = jax.tree.unflatten(step.structure, leaves)
        return Placed(value, leaves, step, got - asked, time.monotonic_ns() - got)

    def get_state(self) -> State:
        """Returns the reader's position."""
        return self._reader.state()

    def set_state(self, state: State) -> None:
        """Moves the reader."""
        self._reader.restore(state)

    def close(self) -> None:
        """Closes the reader."""
        self._reader.close()
