"""What a closure does to other objects that it refers to, in another process.

A worker has copies of them: a model of Flax NNX, a metric of Keras, a progress bar, an array.
What changes there stays there, so it is told.
"""

from __future__ import annotations

import pickle
import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final, final

import numpy as np

from distlab.step.functions.identity import referenced
from distlab.step.functions.statics import StaticKey, static_key

_MOST_ELEMENTS: Final = 1_000
_DEEPEST: Final = 8
_MOST_NAMED: Final = 3
_HELD_BY: Final = re.compile(r"\._\w+$")
"""Where a variable of Flax or Keras has its array."""
_RANDOM: Final = (np.random.Generator, np.random.RandomState, random.Random)
"""They draw the same numbers in each worker, as each has a copy."""
_NOTHING: Final = static_key(None)


@final
class CapturedObjects:
    """The objects that a function refers to, directly or through functions and containers.

    They are compared before and after its first, second, fourth, eighth run and so on, as a
    function does the same to them each time.

    Args:
      fn: The function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        found: dict[int, tuple[str, Any]] = {}
        _collect("", fn, found, set(), 0)
        self._objects = [(name, value) for name, value in found.values() if _can_change(value)]
        self._runs = 0
        self._before: list[tuple[str, Any, StaticKey]] = []

    def remember(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Notes what they consist of, and the arguments, which are copies, too."""
        self._runs += 1
        self._before = []
        if self._runs & (self._runs - 1) == 0:
            given = [(f"argument {n}", value) for n, value in enumerate(args)]
            found = [*self._objects, *given, *kwargs.items()]
            self._before = [(name, value, _key(value)) for name, value in found]

    def changes(self) -> list[str]:
        """Returns what has changed since `remember`, such as `"bar.n of a Tally"`."""
        found: list[str] = []
        for name, value, before in self._before:
            paths = _changed(before, _key(value))
            if paths:
                more = ", ..." if len(paths) > _MOST_NAMED else ""
                named = ", ".join(name + _HELD_BY.sub("", path) for path in paths[:_MOST_NAMED])
                found.append(f"{named}{more} of a {type(value).__name__}")
        self._before = []
        return found


def _key(value: Any) -> StaticKey:
    return static_key(pickle.dumps(value) if isinstance(value, _RANDOM) else value)


def _changed(before: StaticKey, after: StaticKey) -> list[str]:
    """Returns the paths of parts that have changed, without what is only made when first used."""
    old, new = dict(before), dict(after)
    return [
        path
        for path in {**old, **new}
        if old.get(path) != new.get(path) and not (_is_unset(old, path) and _is_lazy(path))
    ]


def _is_unset(parts: dict[str, Any], path: str) -> bool:
    return path not in parts or parts[path] == _NOTHING[0][1]


def _is_lazy(path: str) -> bool:
    """Returns whether a new part is an attribute, or in something private, such as a cache."""
    return "._" in path or path.rpartition(".")[2].isidentifier()


def _can_change(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Mapping, deque, *_RANDOM)) or len(static_key(value)) > 1


def _collect(
    name: str, value: Any, found: dict[int, tuple[str, Any]], seen: set[int], depth: int
) -> None:
    if depth > _DEEPEST or id(value) in seen:
        return
    seen.add(id(value))
    inner: Iterator[tuple[str, Any]] = iter(())
    match value:
        case FunctionType() | MethodType():
            inner = referenced(value)
        case partial():
            inner = (("", part) for part in (value.func, *value.args, *value.keywords.values()))
        case tuple() | list() | dict() | set() if type(value) in (tuple, list, dict, set):
            if len(value) <= _MOST_ELEMENTS:
                parts = value.values() if isinstance(value, dict) else value
                inner = ((name, part) for part in list(parts))
        case _:
            found[id(value)] = name, value
    for part_name, part in inner:
        _collect(part_name, part, found, seen, depth + 1)
