"""The last batches of iterators, by which a step counts its examples."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any, Final, final

_KEPT: Final = 256


@final
class LastBatches:
    """One array of each of the last 256 batches, by `id`, which it does not keep alive."""

    def __init__(self) -> None:
        self.recent: OrderedDict[int, tuple[weakref.ref[Any], int]] = OrderedDict()

    def set(self, array: Any, examples: int) -> None:
        """Remembers that `array` belongs to a batch of `examples` examples."""
        self.recent[id(array)] = (weakref.ref(array), examples)
        self.recent.move_to_end(id(array))
        if len(self.recent) > _KEPT:
            self.recent.popitem(last=False)

    def examples_among(self, leaves: list[Any]) -> int:
        """Returns the number of examples of the batches whose arrays are among `leaves`."""
        count = 0
        for leaf in leaves:
            known = self.recent.get(id(leaf))
            if known is not None and known[0]() is leaf:
                count += known[1]
        return count
