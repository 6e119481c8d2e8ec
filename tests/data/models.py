"""tf.data's verbs in plain Python on lists, with which property tests compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from distlab.data import Dataset


def numbers(kind: str, size: int) -> Dataset:
    """Returns 0, 1, ... from an array, or computed one by one."""
    return Dataset.range(size) if kind == "array" else Dataset.range(size).map(lambda x: x)


KINDS = st.sampled_from(["array", "values"])
SIZES = st.integers(0, 12)
SMALL = st.integers(1, 5)


def lists(dataset: Any) -> list[Any]:
    """Returns the elements as Python values."""
    return [np.asarray(element).tolist() for element in dataset]


def windows(
    items: Sequence[Any], size: int, shift: int, stride: int, drop_remainder: bool
) -> list[list[Any]]:
    """Every `shift` items, up to `size` of them that are `stride` apart."""
    span = (size - 1) * stride + 1
    found = [list(items[start : start + span : stride]) for start in range(0, len(items), shift)]
    return [each for each in found if len(each) == size] if drop_remainder else found


def groups(
    items: Sequence[Any], key: Callable[[Any], int], size: Callable[[int], int]
) -> list[list[Any]]:
    """Windows of items with one key, in the order in which they are full; then the rest, by key."""
    open_groups: dict[int, list[Any]] = {}
    found = []
    for item in items:
        group = open_groups.setdefault(key(item), [])
        group.append(item)
        if len(group) == size(key(item)):
            found.append(open_groups.pop(key(item)))
    return found + [open_groups[each] for each in sorted(open_groups)]


def padded(
    rows: Sequence[Any], shape: Sequence[int | None], value: Any, dtype: Any
) -> np.ndarray[Any, Any]:
    """The rows in one array, filled up with `value`."""
    longest = [max(row.shape[axis] for row in rows) for axis in range(len(shape))]
    target = [most if size is None else size for size, most in zip(shape, longest, strict=True)]
    result = np.full((len(rows), *target), value, dtype)
    for number, row in enumerate(rows):
        place: Any = (number, *(slice(0, size) for size in row.shape))
        result[place] = row
    return result


def directed(
    parts: Sequence[Sequence[Any]], choices: Sequence[int], stop_on_empty: bool
) -> list[Any]:
    """The next item of the chosen part, for each choice."""
    iterators = [iter(part) for part in parts]
    found = []
    for choice in choices:
        item = next(iterators[choice], None)
        if item is not None:
            found.append(item)
        elif stop_on_empty:
            break
    return found
