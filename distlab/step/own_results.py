"""What a compiled function makes and returns that is no array, such as a set: a copy for each call.

Its Python runs when it is compiled, so all calls would return the one object that it made then, and
see what their callers do to it. What nobody else holds was made by the function, and is copied.
What something else holds, such as a global or an argument, is that one object for every call, as
the function would return it each time.
"""

from __future__ import annotations

import copy
import gc
import sys
from collections import Counter
from collections.abc import Sequence
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final, final

import jax
import numpy as np

from distlab.step.hidden_parts import is_gone_through_once

_ATOMS: Final = (
    *(bool, int, float, complex, str, bytes, type(None), np.generic, jax.Array),
    *(type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType),
)
"""Objects that never change, or that the program shares."""

_MOST_PARTS: Final = 10_000


@final
class OwnResults:
    """Copies the leaves of a result that the function made.

    Attributes:
      positions: Their positions among the leaves.
    """

    def __init__(self, positions: list[int], leaves: list[Any], shared: dict[int, Any]) -> None:
        self.positions = positions
        self._leaves = leaves
        self._shared = shared

    def __call__(self) -> list[Any]:
        """Returns a copy of each leaf, with the same parts in what they share with others."""
        return copy.deepcopy(self._leaves, dict(self._shared))


def own_results(leaves: Sequence[tuple[Any] | None]) -> OwnResults | None:
    """Returns what copies the leaves of a result that the function made; None for none."""
    kept = {
        position: one
        for position, one in enumerate(leaves)
        if one is not None and not _stays(one[0])
    }
    if not kept:  # nearly always
        return None
    shared = _shared(list(kept.values()))
    own = [n for n, (leaf,) in kept.items() if id(leaf) not in shared and _is_copied(leaf, shared)]
    return OwnResults(own, [kept[n][0] for n in own], shared) if own else None


def _is_copied(value: Any, shared: dict[int, Any]) -> bool:
    """Returns whether an object can be copied; locks, files and the like can't."""
    try:
        copy.deepcopy(value, dict(shared))
    except Exception:  # noqa: BLE001 - any code of the user's
        return False
    return True


def _shared(roots: list[tuple[Any]]) -> dict[int, Any]:
    """Returns the objects in some others that something else refers to, by their `id`.

    Those have more references than there are in the objects that are looked at.
    """
    found: dict[int, Any] = {}
    parts: dict[int, list[int]] = {}
    outside: list[int] = []
    inside: Counter[int] = Counter()
    waiting = [part for root in roots for part in root]
    inside.update(map(id, waiting))
    while waiting:
        value = waiting.pop()
        if id(value) in found:
            continue
        found[id(value)] = value
        stays = _stays(value) or len(found) > _MOST_PARTS
        held = [] if stays else _held(value)
        parts[id(value)] = list(map(id, held))
        inside.update(parts[id(value)])
        waiting += held
        if stays:
            outside.append(id(value))
    del held, value  # references, which would count
    references = _references(found)
    outside += [key for key, count in references.items() if count > inside[key]]
    shared: dict[int, Any] = {}
    while outside:
        key = outside.pop()
        if key not in shared:
            shared[key] = found[key]
            outside += parts[key]
    return shared


def _references(objects: dict[int, Any]) -> dict[int, int]:
    """Returns for each object how many references there are to it beside that of the dict."""
    counted = {**objects, -1: object()}
    counts = {key: sys.getrefcount(value) for key, value in counted.items()}
    alone = counts.pop(-1)  # what an object has that nothing refers to, and that is counted here
    return {key: count - alone - 1 for key, count in counts.items()}


def _stays(value: Any) -> bool:
    """Returns whether an object is not copied, whoever made it."""
    if isinstance(value, np.ndarray):
        return value.base is not None  # what is written to a view, is written to its base
    return isinstance(value, _ATOMS) or is_gone_through_once(value)


def _held(value: Any) -> list[Any]:
    """Returns the objects that one refers to."""
    if isinstance(value, np.ndarray):
        return list(value.flat) if value.dtype == object else []
    return gc.get_referents(value)
