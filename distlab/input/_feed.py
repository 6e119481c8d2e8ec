"""The steps of a distributed dataset, placed on the devices."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, final

import jax

from distlab.data.plan.engine import State
from distlab.devices.mesh import ReplicaMesh
from distlab.input._assemble import assemble
from distlab.input._steps import Reader, Shapes, Step


class PlacedStep(NamedTuple):
    """A step on the devices.

    Attributes:
      value: The element, with a `PerReplica` at each leaf.
      leaves: Its leaves.
      step: The step in host memory.
      wait_ns: Nanoseconds that the caller waited for the step to be read.
      transfer_ns: Nanoseconds that the caller spent placing it on the devices.
    """

    value: Any
    leaves: list[Any]
    step: Step
    wait_ns: int
    transfer_ns: int


class Feed(Protocol):
    """An iterator over placed steps. Its methods have the names of Grain's iterators."""

    def __next__(self) -> PlacedStep:
        """Returns the next step; raises `StopIteration` at the end, and from then on."""

    def get_state(self) -> State:
        """Returns the position after the last step."""

    def set_state(self, state: State) -> None:
        """Moves to a position."""

    def close(self) -> None:
        """Stops reading ahead."""


@final
class DirectFeed:
    """Reads and places each step on demand.

    Args:
      reader: Reads the steps.
      mesh: The replicas' devices.
      fetch: Whether to put batches on the devices, or leave them on the host.
    """

    def __init__(self, reader: Reader, mesh: ReplicaMesh, *, fetch: bool) -> None:
        self._reader, self._mesh, self._fetch = reader, mesh, fetch

    def __next__(self) -> PlacedStep:
        """Reads and places the next step."""
        asked = time.monotonic_ns()
        step = self._reader.read()
        read = time.monotonic_ns()
        unknown: Sequence[Shapes | None] = [None] * len(step.columns)
        everywhere = unknown if step.shapes is None else step.shapes
        leaves = [
            assemble(parts, self._mesh, fetch=self._fetch, everywhere=shapes)
            for parts, shapes in zip(step.columns, everywhere, strict=True)
        ]
        value = jax.tree.unflatten(step.structure, leaves)
        return PlacedStep(value, leaves, step, read - asked, time.monotonic_ns() - read)

    def get_state(self) -> State:
        """Returns the reader's position."""
        return self._reader.state()

    def set_state(self, state: State) -> None:
        """Moves the reader."""
        self._reader.restore(state)

    def interrupt(self) -> None:
        """Ends a wait for other processes in another thread."""
        self._reader.interrupt()

    def close(self) -> None:
        """Closes the reader."""
        self._reader.close()
