"""unique: each element once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Stream
from distlab.data.plan.nest import describe, leaves
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Reading, Unary
from distlab.data.plan.replay import ReplayedElements, reading_of


@dataclass(frozen=True, eq=False)
class Unique(Unary):
    """The elements that did not come before."""

    @property
    def cardinality(self) -> int:
        """Unknown, because the values decide."""
        return UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the elements that are new."""
        stream = open_input(self.input, reading)
        return ReplayedElements(lambda: _new_ones(stream))


def _new_ones(stream: Stream) -> Iterator[Element]:
    seen: set[Any] = set()
    with reading_of(stream) as reader:
        for element in reader:
            key = (describe(element.value), *map(_leaf_key, leaves(element.value)))
            if key not in seen:
                seen.add(key)
                yield element


def _leaf_key(leaf: Any) -> Any:
    if isinstance(leaf, bytes):
        return leaf
    array = np.asarray(leaf)
    content = tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
    return (array.dtype, array.shape, content)
