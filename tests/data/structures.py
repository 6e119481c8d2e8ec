"""Structures of every shape, and arrays in them, for property tests."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st


class One(NamedTuple):
    """A named tuple of one field."""

    only: Any


class Pair(NamedTuple):
    """A named tuple of two fields."""

    left: Any
    right: Any


class Leaf(NamedTuple):
    """A leaf of a structure before it has values: the shape and type of a row."""

    shape: tuple[int, ...]
    kind: str


def _containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abc"), parts, max_size=3),
        parts.map(One),
        st.tuples(parts, parts).map(lambda pair: Pair(*pair)),
        parts.map(lambda part: (part,)),
        parts.map(lambda part: {"k": part}),
    )


def structures(kinds: str = "ifS", min_rank: int = 0) -> st.SearchStrategy[Any]:
    """Returns structures with at least one leaf.

    Args:
      kinds: The kinds of dtypes: `i` numbers, `f` fractions, `S` strings.
      min_rank: The smallest rank of a row.
    """
    shapes = st.lists(st.integers(1, 2), min_size=min_rank, max_size=2).map(tuple)
    leaf = st.builds(Leaf, shapes, st.sampled_from(kinds))
    return st.recursive(leaf, _containers, max_leaves=5).filter(lambda nest: bool(leaves(nest)))


def fill(structure: Any, rows: int, *, as_lists: bool = False) -> Any:
    """Returns the structure with an array of `rows` different rows at each leaf."""
    counter = iter(range(1000))

    def values(leaf: Leaf) -> Any:
        first = 100 * next(counter)
        size = rows * int(np.prod(leaf.shape))
        numbers = np.arange(first, first + size, dtype=np.int64).reshape(rows, *leaf.shape)
        array: Any = numbers.astype(np.int32)
        if leaf.kind == "f":
            array = numbers.astype(np.float32) + np.float32(0.5)
        if leaf.kind == "S":
            array = numbers.astype(str).astype(object)
        return array.tolist() if as_lists else array

    return rebuild(values, structure)


def rebuild(function: Any, nest: Any) -> Any:
    """Applies a function to the leaves; a plain model of the library's own nests."""
    if type(nest) is Leaf or not isinstance(nest, tuple | dict):
        return function(nest)
    if isinstance(nest, dict):
        return {key: rebuild(function, part) for key, part in nest.items()}
    parts = [rebuild(function, part) for part in nest]
    return tuple(parts) if type(nest) is tuple else type(nest)(*parts)


def leaves(nest: Any) -> list[Any]:
    """Returns the leaves in order."""
    found: list[Any] = []
    rebuild(found.append, nest)
    return found


def plain(nest: Any) -> Any:
    """Returns the nest with Python values, in which different containers differ."""
    if isinstance(nest, dict):
        return {key: plain(part) for key, part in nest.items()}
    if isinstance(nest, tuple):
        return (type(nest).__name__, *map(plain, nest))
    if isinstance(nest, bytes):
        return nest.decode()
    values = np.asarray(nest).tolist()
    return _decoded(values)


def row(nest: Any, number: int) -> Any:
    """Returns row `number` of each array, as Python values."""
    return plain(rebuild(lambda array: array[number], nest))


def _decoded(values: Any) -> Any:
    if isinstance(values, list):
        return [_decoded(value) for value in values]
    return values.decode() if isinstance(values, bytes) else values
