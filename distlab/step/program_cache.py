"""The compiled programs of the functions that ran last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, Final, final

from distlab.step.program import Program

_FUNCTIONS_KEPT: Final = 256


@final
class ProgramCache:
    """Keeps the programs of the last 256 functions, for any thread.

    The limit keeps functions made for one step (lambdas in a loop) from filling memory.
    """

    def __init__(self) -> None:
        self._by_function: OrderedDict[Any, dict[Any, Program]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, fn: Callable[..., Any]) -> dict[Any, Program]:
        """Returns a function's programs by the key of their arguments; the caller adds to it."""
        key = _function_key(fn)
        with self._lock:
            programs = self._by_function.get(key)
            if programs is None:
                programs = self._by_function[key] = {}
                if len(self._by_function) > _FUNCTIONS_KEPT:
                    self._by_function.popitem(last=False)
            else:
                self._by_function.move_to_end(key)
            return programs


class SameObject:
    """A key that equals only the key of the same object, or of an equal string."""

    __slots__ = ("object",)

    def __init__(self, object_: Any) -> None:
        self.object = object_

    def __hash__(self) -> int:
        return hash(self.object) if isinstance(self.object, str) else id(self.object)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SameObject):
            return False
        mine, theirs = self.object, other.object
        return mine is theirs or (isinstance(mine, str) and mine == theirs)


def _function_key(fn: Callable[..., Any]) -> Any:
    """Returns the cache key of a function; a method's object counts by identity."""
    if isinstance(fn, FunctionType):
        return fn
    if isinstance(fn, MethodType):
        return SameObject(fn.__self__), fn.__func__
    try:
        hash(fn)
    except TypeError:
        return SameObject(fn)
    return fn
