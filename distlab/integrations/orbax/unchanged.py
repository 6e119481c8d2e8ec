"""Whether a checkpoint of plain values was saved twice, and nothing gave it new ones."""

from __future__ import annotations

import operator
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
        """Returns whether this is the second save, with the values of the first one."""
        if self._done:
            return False
        values = _plain_values(parts)
        if values is None:
            self.forget()
            return False
        if self._first is None:
            self._first = [_reference(value) for value in values]  # holds no array of before
            return False
        first = [reference() for reference in self._first]
        self.forget()
        return len(first) == len(values) and all(map(operator.is_, first, values))


def _plain_values(parts: Any) -> list[Any] | None:
    """Returns the values in nests of plain ones; None where something else is among them.

    A nest may hold itself, which JAX would never come to the end of.
    """
    found, waiting, seen = [], [parts], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, _PLAIN):
            found.append(value)
        elif value is not None and id(value) not in seen:
            seen.add(id(value))
            inner = None if kind_of(value) is not None or is_nnx(value) else _children(value)
            if inner is None:
                return None
            waiting.extend(inner)
    return found


def _children(nest: Any) -> list[Any] | None:
    """Returns what a nest holds; None of what is none, or is one of no order."""
    try:
        level = jax.tree_util.default_registry.flatten_one_level(nest)
    except Exception:  # noqa: BLE001 - keys that can't be sorted, and any class's own flattening
        return None
    return None if level is None else list(level[0])


def _reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # a number or a string
        return lambda: value
