"""Randomness that a seed, the number of a pass and the repetitions around it determine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distlab.data.plan.arguments import ChosenSeed
from distlab.data.plan.engine import Element, Reader, State
from distlab.data.plan.plan import Node, Reading, walk

_CHUNK = 1024


@dataclass(frozen=True, eq=False, kw_only=True)
class Seeded(Node):
    """A node with random choices; with `reshuffle` each pass and each repetition has its own."""

    seed: int
    reshuffle: bool = True
    _passes: Iterator[int] = field(
        default_factory=itertools.count, init=False, repr=False, compare=False
    )

    @property
    def window(self) -> int:
        """The number of elements that the first one is drawn from; 0 for other choices."""
        return 0

    def next_pass(self) -> tuple[int, int]:
        """Returns the seed and the number of a new pass."""
        return int(self.seed), next(self._passes) if self.reshuffle else 0

    def generator(self, reading: Reading, *more: int) -> np.random.Generator:
        """Returns the generator of a pass; other numbers after it give other ones."""
        seed, number = reading.shuffles.get(self, (self.seed, 0))
        path = (number, *reading.path) if self.reshuffle else ()
        # The sign is separate: a SeedSequence accepts natural numbers only.
        return np.random.default_rng([abs(seed), int(seed < 0), *path, *more])


def chosen_seeds(plan: Node) -> list[int]:
    """Returns the seeds of a plan that were chosen at random, in the order of `walk`."""
    return [int(node.seed) for node in _with_chosen_seeds(plan)]


def reseeded(plan: Node, seeds: Sequence[int]) -> Node:
    """Returns a plan with other seeds instead of those chosen at random, at its first pass."""
    given: dict[Node, int] = dict(zip(_with_chosen_seeds(plan), seeds, strict=False))
    changed: dict[Node, Node] = {}

    def change(node: Node) -> Node:
        if node not in changed:
            inputs = [change(each) for each in node.inputs]
            new = node
            if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
                new = node.with_inputs(*inputs)
            if isinstance(new, Seeded):
                new = replace(new, seed=given.get(node, new.seed))  # which counts passes anew
            changed[node] = new
        return changed[node]

    return change(plan)


def _with_chosen_seeds(plan: Node) -> list[Seeded]:
    seeded = (node for node in walk(plan) if isinstance(node, Seeded))
    return [node for node in seeded if isinstance(node.seed, ChosenSeed)]


class Draws(Reader):
    """Numbers drawn a chunk at a time, so that any place is reached without those before it."""

    def __init__(self, draw: Callable[[int, int], Any]) -> None:
        super().__init__()
        self._draw = draw
        self._chunk: list[Any] = []
        self._given = 0

    def __next__(self) -> Element:
        """Returns the next number."""
        number, place = divmod(self._given, _CHUNK)
        if not place or not self._chunk:
            self._chunk = list(self._draw(number, _CHUNK))
        self._given += 1
        return Element(self._chunk[place], None)

    def get_state(self) -> State:
        """Returns the number of numbers so far."""
        return {"given": self._given}

    def set_state(self, state: State) -> None:
        """Goes to the place after as many."""
        self._given, self._chunk = state["given"], []
