"""Nests that JAX can't take apart: those that hold themselves, and dicts whose keys have no order.

Where JAX asks a function of Python about each part (`is_leaf`) of a nest that holds itself, it is
unusable in the rest of the thread. So such a nest is found before.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from distlab.errors import DistlabError, StructureError
from distlab.text.shown import shown

_DEEP: Final = 100
_LARGE: Final = 1_000_000
"""Nests that are deeper or larger may have no end."""

_WITH_PARTS: Final = (tuple, OrderedDict, defaultdict)
"""The classes, next to list and dict, whose objects JAX takes apart as a tuple or a dict."""


def require_nest(nest: Any, what: str) -> None:
    """Checks that a value does not hold itself."""
    if _may_be_endless(nest):
        explain(nest, what)


@contextmanager
def taken_apart(nest: Any, what: str) -> Iterator[None]:
    """Checks that a value does not hold itself, and tells errors of JAX that its keys cause."""
    require_nest(nest, what)
    try:
        yield
    except ValueError as error:
        if not isinstance(error, DistlabError):
            explain(nest, what, error)
        raise


def explain(nest: Any, what: str, error: Exception | None = None) -> None:
    """Raises an error that says why JAX can't take a nest apart, if it is the nest's fault."""
    above: dict[int, str] = {}
    seen: set[int] = set()
    stack: list[tuple[Any, Iterator[tuple[str, Any]]]] = [((), iter([("", nest)]))]
    while stack:
        container, parts = stack[-1]
        for place, part in parts:
            if id(part) in above:
                raise StructureError(
                    f"{what} holds itself, and so has no end: {place} in it is "
                    f"{above[id(part)] or 'the whole'} again. Remove it, or pass the arrays in it "
                    "alone."
                ) from error
            if isinstance(part, list | tuple | dict) and id(part) not in seen:
                above[id(part)] = place
                seen.add(id(part))
                stack.append((part, _parts(part, what, place, error)))
                break
        else:
            stack.pop()
            above.pop(id(container), None)


def _may_be_endless(nest: Any) -> bool:
    """Returns whether a nest is deeper, or larger, than nests are. It is quick: each step asks."""
    parts: list[Any] = [nest]
    for _ in range(_DEEP):
        inner: list[Any] = []
        for part in parts:
            kind: Any = type(part)
            if kind is dict:
                inner.extend(part.values())
            elif kind is list or kind is tuple:
                inner.extend(part)
            elif issubclass(kind, _WITH_PARTS):
                inner.extend(part.values() if isinstance(part, dict) else part)
        if not inner or len(inner) > _LARGE:
            return bool(inner)
        parts = inner
    return True


def _parts(
    container: Any, what: str, place: str, error: Exception | None
) -> Iterator[tuple[str, Any]]:
    """Returns the parts of a list, tuple or dict, each with its place."""
    if not isinstance(container, dict):
        return ((f"{place}[{number}]", part) for number, part in enumerate(container))
    try:
        sorted(container)
    except TypeError:
        raise StructureError(
            f"{what}{place} is a dict whose keys have no order, got {shown(list(container))}. Use "
            "keys of one type."
        ) from error
    return ((f"{place}[{key!r}]", part) for key, part in container.items())
