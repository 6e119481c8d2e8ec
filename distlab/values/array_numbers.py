"""Numbers for arrays, by which events refer to an array without keeping it alive."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

_next = itertools.count()
_known: dict[int, tuple[weakref.ref[Any], int]] = {}


def number_of(array: Any) -> int:
    """Returns the array's number in this process, which stays the same while the array lives."""
    key = id(array)
    known = _known.get(key)
    if known is not None and known[0]() is array:
        return known[1]
    number = next(_next)

    def forget(dead: weakref.ref[Any]) -> None:
        if _known.get(key, (None,))[0] is dead:
            del _known[key]

    _known[key] = (weakref.ref(array, forget), number)
    return number
