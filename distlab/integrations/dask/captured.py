"""What a closure does to the lists and dictionaries that it refers to, in another process.

A worker has copies of them. What a closure appends to a list arrives at the coordinator's list, as
it would with workers that are threads; any other change stays in the worker, and is told.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias, final

from distlab.step.functions.identity import referenced

_MOST_ELEMENTS: Final = 1_000
_DEEPEST: Final = 8

Appended: TypeAlias = dict[int, list[Any]]
"""What was appended to each list, by its number."""


class Changes(NamedTuple):
    """What a closure did.

    Attributes:
      appended: What it appended to lists.
      others: What it changed in another way, as text.
    """

    appended: Appended
    others: list[str]


@final
class CapturedContainers:
    """The lists, dictionaries and sets that a function refers to, directly or through functions.

    They have the same order in each process that has the function.

    Args:
      fn: The function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        found: dict[int, Any] = {}
        _collect(fn, found, set(), 0)
        self._containers = list(found.values())
        self._before: list[Any] = []

    def remember(self) -> None:
        """Notes what is in them."""
        self._before = [_copy(container) for container in self._containers]

    def changes(self) -> Changes:
        """Returns what was done since `remember`, and takes out what was appended."""
        appended: Appended = {}
        others: list[str] = []
        for number, (now, before) in enumerate(zip(self._containers, self._before, strict=True)):
            if before is None or _same(now, before):
                continue
            if isinstance(now, list) and _same(now[: len(before)], before):
                appended[number] = now[len(before) :]
                del now[len(before) :]
            else:
                others.append(f"a {type(now).__name__}")
        return Changes(appended, others)

    def extend(self, appended: Appended) -> None:
        """Appends what a closure appended in another process."""
        for number, elements in appended.items():
            self._containers[number].extend(elements)

    def __bool__(self) -> bool:
        """Returns whether there are any."""
        return bool(self._containers)


def outer_names_assigned(fn: Callable[..., Any]) -> list[str]:
    """Returns the outer variables that a function assigns (`nonlocal`, `global`)."""
    code = getattr(fn, "__code__", None)
    return sorted(set(_assigned(code, set(code.co_freevars)))) if isinstance(code, CodeType) else []


def _assigned(code: CodeType, outer: set[str]) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname == "STORE_GLOBAL":
            yield name
        if instruction.opname == "STORE_DEREF" and name in code.co_freevars and name in outer:
            yield name
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _assigned(constant, outer)


def _collect(value: Any, found: dict[int, Any], seen: set[int], depth: int) -> None:
    if depth > _DEEPEST or id(value) in seen:
        return
    seen.add(id(value))
    inner: list[Any] = []
    match value:
        case FunctionType() | MethodType():
            inner = [part for _, part in referenced(value)]
        case functools.partial():
            inner = [value.func, *value.args, *value.keywords.values()]
        case tuple() if len(value) <= _MOST_ELEMENTS:
            inner = list(value)
        case list() | dict() | set() if type(value) in (list, dict, set):
            found[id(value)] = value
            if len(value) <= _MOST_ELEMENTS:
                inner = list(value.values()) if isinstance(value, dict) else list(value)
    for part in inner:
        _collect(part, found, seen, depth + 1)


def _copy(container: Any) -> Any:
    if isinstance(container, list) or len(container) <= _MOST_ELEMENTS:
        return container.copy()
    return None  # too large to be compared after each closure


def _same(now: Any, before: Any) -> bool:
    if len(now) != len(before):
        return False
    if isinstance(now, list):
        return all(one is other for one, other in zip(now, before, strict=True))
    if isinstance(now, dict):
        return all(key in before and before[key] is value for key, value in now.items())
    return bool(now == before)
