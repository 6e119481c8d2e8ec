"""The last batches of iterators, by which a step counts its examples."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final, final

_KEPT: Final = 256


@final
class LastBatches:
    """One array of each of the last 256 batches, by `id`, which it does not keep alive."""

    def __init__(self) -> None:
        self.recent: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._order: deque[tuple[int, weakref.ref[Any]]] = deque()

    def set(self, array: Any, examples: int) -> None:
        """Remembers that `array` belongs to a batch of `examples` examples."""
        reference = weakref.ref(array)
        self.recent[id(array)] = (reference, examples)
        self._order.append((id(array), reference))
        if len(self._order) > _KEPT:
            oldest, of_oldest = self._order.popleft()
            if self.recent[oldest][0] is of_oldest:  # no other array has its id now
                del self.recent[oldest]

    def examples_among(self, leaves: list[Any]) -> int:
        """Returns the number of examples of the batches whose arrays are among `leaves`."""
        count = 0
        for leaf in leaves:
            known = self.recent.get(id(leaf))
            if known is not None and known[0]() is leaf:
                count += known[1]
        return count
