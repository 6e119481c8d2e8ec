"""Whether a checkpoint of plain values was saved twice, and nothing gave it new ones."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final, final

import jax
import numpy as np

from distlab.integrations.orbax.walk import is_nnx, kind_of
from distlab.values.distributed import Mirrored, PerReplica

_PLAIN: Final = (bool, int, float, complex, str, np.generic, jax.Array, Mirrored, PerReplica)
"""Values that can't be changed: a step returns others."""


@final
class Unchanged:
    """Compares the values of a checkpoint's first two saves.

    After these it is done: a program may save a last time what it has saved before.
    """

    def __init__(self) -> None:
        self._first: list[Callable[[], Any]] | None = None
        self._done = False

    def forget(self) -> None:
        """Ends the comparison, as the program assigns values."""
        self._first, self._done = None, True

    def is_second_of(self, parts: Any) -> bool:
        """Returns whether this is the second save, with the values of the first one.

        Args:
          parts: The objects of the checkpoint. One whose state may change in place, such as a
            variable or an iterator, ends the comparison.
        """
        if self._done:
            return False
        values = jax.tree.leaves(
            parts, is_leaf=lambda value: kind_of(value) is not None or is_nnx(value)
        )
        if not all(isinstance(value, _PLAIN) for value in values):
            self.forget()
            return False
        if self._first is None:
            self._first = [_reference(value) for value in values]  # holds no array of before
            return False
        first = [reference() for reference in self._first]
        self.forget()
        return len(first) == len(values) and all(map(_same, first, values))


def _same(first: Any, second: Any) -> bool:
    return first is second


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # a number or a string
        return lambda: value
