"""Which batch a strategy gave out last, so that a step can say how much it works on."""

from __future__ import annotations

import weakref
from typing import Any, final


@final
class Fed:
    """Remembers one array of the last batch, without keeping it alive."""

    def __init__(self) -> None:
        self._array: weakref.ref[Any] | None = None
        self._examples = 0

    def give(self, array: Any, examples: int) -> None:
        """Notes that a batch of `examples` examples was given out."""
        self._array = weakref.ref(array)
        self._examples = examples

    def examples(self, leaves: list[Any]) -> int:
        """Returns the examples in the batch when it is among `leaves`, else 0."""
        array = None if self._array is None else self._array()
        if array is not None:
            for leaf in leaves:
                if leaf is array:
                    return self._examples
        return 0
