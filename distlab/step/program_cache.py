"""The programs of the functions that ran last, found by function."""

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
    """Keeps the programs of the last 256 functions.

    So functions made anew for each step (lambdas in a loop) can't fill the memory.
    Any thread may use it.
    """

    def __init__(self) -> None:
        self._by_function: OrderedDict[Any, dict[Any, Program]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, fn: Callable[..., Any]) -> dict[Any, Program]:
        """Returns a function's programs by the key of their arguments, to read and add to."""
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


class Same:
    """A key for an object that is no array: that very object."""

    __slots__ = ("object",)

    def __init__(self, object_: Any) -> None:
        self.object = object_

    def __hash__(self) -> int:
        return hash(self.object) if isinstance(self.object, str) else id(self.object)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same):
            return False
        mine, theirs = self.object, other.object
        return mine is theirs or (isinstance(mine, str) and mine == theirs)


def _function_key(fn: Callable[..., Any]) -> Any:
    """Returns what distinguishes functions: of a method, its object by identity."""
    if isinstance(fn, FunctionType):
        return fn
    if isinstance(fn, MethodType):
        return Same(fn.__self__), fn.__func__
    try:
        hash(fn)
    except TypeError:
        return Same(fn)
    return fn
