"""Randomness that a seed, the number of a pass and the repetitions around it determine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distlab.data._plan import Node, Reading

_CHUNK = 1024


@dataclass(frozen=True, eq=False, kw_only=True)
class Seeded(Node):
    """A node with random choices, which can be repeated exactly.

    Attributes:
      seed: The seed.
      reshuffle: Whether each pass and each repetition has its own choices.
    """

    seed: int
    reshuffle: bool = True
    _passes: Iterator[int] = field(
        default_factory=itertools.count, init=False, repr=False, compare=False
    )

    def next_pass(self) -> tuple[int, int]:
        """Returns the seed and the number of a new pass."""
        return self.seed, next(self._passes) if self.reshuffle else 0

    def generator(self, reading: Reading, *more: int) -> np.random.Generator:
        """Returns the generator of a pass; other numbers after it give other ones."""
        seed, number = reading.shuffles.get(self, (self.seed, 0))
        path = (number, *reading.path) if self.reshuffle else ()
        # The sign is separate: a SeedSequence accepts natural numbers only.
        return np.random.default_rng([abs(seed), int(seed < 0), *path, *more])


class Draws:
    """Numbers drawn a chunk at a time, so that any place is reached without those before it.

    Args:
      draw: Returns the numbers of a chunk, from its number and their count.
    """

    def __init__(self, draw: Callable[[int, int], Any]) -> None:
        self._draw = draw
        self._chunk: list[Any] = []
        self.given = 0

    def next(self) -> Any:
        """Returns the next number."""
        number, place = divmod(self.given, _CHUNK)
        if not place or not self._chunk:
            self._chunk = list(self._draw(number, _CHUNK))
        self.given += 1
        return self._chunk[place]

    def go_to(self, given: int) -> None:
        """Goes to the place after `given` numbers."""
        self.given, self._chunk = given, []
