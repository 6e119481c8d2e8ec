"""Nests: tuples, dicts and named tuples of values, as tf.data elements are.

None is a nest without leaves. Everything else, lists included, is a leaf.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from distlab.errors import StructureError, ValueShapeError
from distlab.text.shown import shown

_KINDS: dict[type, str] = {type(None): "none"}
"""The role of a type in a nest; kept, because every leaf needs it."""


class AnyDataset(ABC):
    """The base of `Dataset`, which may be a leaf of an element."""

    @property
    @abstractmethod
    def plan(self) -> Any:
        """The operations that produce the elements."""


def _kind(container: type) -> str:
    kind = _KINDS.get(container)
    if kind is None:
        if issubclass(container, tuple):
            kind = "namedtuple" if hasattr(container, "_fields") else "tuple"
        else:
            kind = "mapping" if issubclass(container, Mapping) else "leaf"
        _KINDS[container] = kind
    return kind


def is_namedtuple(nest: Any) -> bool:
    """Returns whether `nest` is a named tuple."""
    return _kind(type(nest)) == "namedtuple"


def is_leaf(nest: Any) -> bool:
    """Returns whether `nest` is no container."""
    return _kind(type(nest)) == "leaf"


def map_nest(function: Callable[..., Any], nest: Any, *rest: Any) -> Any:
    """Applies a function to the leaves of nests of one structure."""
    kind = _kind(type(nest))
    if kind == "leaf":
        return function(nest, *rest)
    for other in rest:
        _check_same_branch(nest, other)
    if kind == "none":
        return None
    if kind == "mapping":
        parts = {
            key: map_nest(function, value, *[other[key] for other in rest])
            for key, value in nest.items()
        }
        return parts if type(nest) is dict else _rebuild_mapping(nest, parts)
    if rest:
        values = [map_nest(function, *parts) for parts in zip(nest, *rest, strict=True)]
    else:
        values = [map_nest(function, part) for part in nest]
    return type(nest)(*values) if kind == "namedtuple" else tuple(values)


def leaves(nest: Any) -> Iterator[Any]:
    """Yields the leaves in order."""
    if isinstance(nest, Mapping):
        for value in nest.values():
            yield from leaves(value)
    elif isinstance(nest, tuple):
        for value in nest:
            yield from leaves(value)
    elif nest is not None:
        yield nest


def up_to(name: str, like: Any, given: Any) -> Iterator[Any]:
    """Yields the parts of `given` at the leaves of `like`, which may be tuples or lists."""
    if is_leaf(like):
        yield given
        return
    if like is None:
        return
    if isinstance(like, Mapping):
        same = isinstance(given, Mapping) and set(given) == set(like)
        pairs = [(part, given[key]) for key, part in like.items()] if same else []
    else:
        same = isinstance(given, tuple | list) and len(given) == len(like)
        pairs = list(zip(like, given, strict=True)) if same else []
    if not same:
        raise StructureError(
            f"{name} must have the structure {describe(like)}, got {shown(given)}. Give one entry "
            "for each component."
        )
    for pair in pairs:
        yield from up_to(name, *pair)


def call_with(function: Callable[..., Any], element: Any) -> Any:
    """Calls `function` as tf.data does: the parts of a plain tuple are its arguments."""
    if isinstance(element, tuple) and not is_namedtuple(element):
        return function(*element)
    return function(element)


def truth(verb: str, predicate: Callable[..., Any], value: Any) -> bool:
    """Returns what a predicate of an element says."""
    returned = call_with(predicate, value)
    try:
        answer = np.asarray(returned)
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        answer = np.empty(0)
    if answer.size != 1 or answer.dtype != bool:
        raise ValueShapeError(
            f"The predicate of {verb} must return one truth value, got {shown(returned)}. Compare, "
            f"as in x > 0; of an array use np.all or np.any, or {verb} before batch."
        )
    return bool(answer.item())


def describe(nest: Any) -> str:
    """Returns the structure as text, with `*` for each leaf."""
    if isinstance(nest, Mapping):
        inside = ", ".join(f"{key!r}: {describe(value)}" for key, value in nest.items())
        return "{" + inside + "}"
    if isinstance(nest, tuple):
        name = type(nest).__name__ if is_namedtuple(nest) else ""
        return f"{name}({', '.join(describe(value) for value in nest)})"
    return "*" if nest is not None else "None"


def _rebuild_mapping(like: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """Converts `parts` to the mapping type of `like`, where its constructor accepts pairs."""
    try:
        return type(like)(parts)  # type: ignore[call-arg]
    except TypeError:  # a defaultdict, say, whose first argument is something else
        return parts


def _check_same_branch(nest: Any, other: Any) -> None:
    if isinstance(nest, Mapping):
        same = isinstance(other, Mapping) and set(other) == set(nest)
    elif nest is None:
        same = other is None
    else:
        same = isinstance(other, tuple) and len(other) == len(nest)
    if not same:
        refuse_structures(nest, other)


def refuse_structures(nest: Any, other: Any) -> NoReturn:
    """Raises the error for nests that were to have one structure."""
    raise StructureError(
        f"Combined elements must have one structure, got {describe(nest)} and {describe(other)}. "
        "Make them alike, for example with map."
    )
