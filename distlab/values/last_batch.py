"""The last batch of an iterator, by which a step counts its examples."""

from __future__ import annotations

import weakref
from typing import Any, final


@final
class LastBatch:
    """Remembers one array of the last batch without keeping it alive."""

    def __init__(self) -> None:
        self._array: weakref.ref[Any] | None = None
        self._examples = 0

    def set(self, array: Any, examples: int) -> None:
        """Remembers that `array` belongs to a batch of `examples` examples."""
        self._array = weakref.ref(array)
        self._examples = examples

    def examples_among(self, leaves: list[Any]) -> int:
        """Returns the batch's number of examples when its array is among `leaves`, else 0."""
        array = None if self._array is None else self._array()
        if array is not None:
            for leaf in leaves:
                if leaf is array:
                    return self._examples
        return 0
