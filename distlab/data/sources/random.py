"""random: pseudorandom numbers without end."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Reader, State, Stream
from distlab.data.plan.plan import INFINITE_CARDINALITY, Node, Opener, Reading
from distlab.data.plan.seeded import Draws, Seeded
from distlab.data.plan.spec import TensorSpec

_END = 2**32


@dataclass(frozen=True, eq=False)
class RandomNumbers(Seeded):
    """Numbers drawn uniformly from 0 to 2**32 - 1."""

    def with_inputs(self, *inputs: Node) -> Node:
        """Returns itself: it has no inputs."""
        assert not inputs
        return self

    @property
    def spec(self) -> TensorSpec:
        """An int64 scalar."""
        return TensorSpec((), np.dtype(np.int64))

    @property
    def cardinality(self) -> int:
        """Infinite."""
        return INFINITE_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Stream:  # noqa: ARG002
        """Opens the numbers."""
        return _RandomStream(functools.partial(self._draw, reading))

    def _draw(self, reading: Reading, chunk: int, count: int) -> Any:
        return self.generator(reading, chunk).integers(0, _END, count, dtype=np.int64)


class _RandomStream(Stream):
    def __init__(self, draw: Any) -> None:
        super().__init__()
        self._draw = draw

    def __iter__(self) -> Reader:
        return _RandomReader(Draws(self._draw))


class _RandomReader(Reader):
    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self._draws = draws

    def __next__(self) -> Element:
        return Element(self._draws.next(), None)

    def get_state(self) -> State:
        return {"given": self._draws.given}

    def set_state(self, state: State) -> None:
        self._draws.go_to(state["given"])
