"""Rows of elements: slices of batches, and rows joined into batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element
from distlab.data.plan.nest import leaves, map_nest
from distlab.data.plan.spec import refuse_dataset
from distlab.errors import InvalidArgumentError, NotBatchedError


def row_count(element: Element) -> int:
    """Returns the first dimension, which all components share."""
    shapes = [_shape(leaf) for leaf in leaves(element.value)]
    if not all(shapes):
        raise NotBatchedError(
            "Only components with a first dimension have rows, got shapes "
            f"{shapes}. Call batch(n) first."
        )
    counts = {shape[0] for shape in shapes}
    if len(counts) != 1:
        raise InvalidArgumentError(
            f"Components of a batch must share their first dimension, got shapes {shapes}"
        )
    return int(counts.pop())


def row(element: Element, number: int) -> Element:
    """Returns one row of an element."""
    indices = _index_rows(element)
    value = map_nest(lambda leaf: leaf[number], element.value)
    return Element(value, None if indices is None else indices[number])


def rows(element: Element, start: int, stop: int) -> Element:
    """Returns rows `start` to `stop` of an element."""
    indices = _index_rows(element)
    value = map_nest(lambda leaf: leaf[start:stop], element.value)
    return Element(value, None if indices is None else indices[start:stop].reshape(-1))


def join(parts: Sequence[Element]) -> Element:
    """Returns the concatenated rows of several elements as one element."""
    if len(parts) == 1:
        return parts[0]
    value = map_nest(_join_leaf, *(part.value for part in parts))
    known = [part.indices for part in parts if part.indices is not None]
    return Element(value, np.concatenate(known) if len(known) == len(parts) else None)


def _shape(leaf: Any) -> tuple[int, ...]:
    refuse_dataset("Dividing an element into rows", leaf)
    return np.shape(leaf)


def _join_leaf(*arrays: Any) -> np.ndarray[Any, Any]:
    if len({array.shape[1:] for array in arrays}) > 1:
        raise InvalidArgumentError(
            "Rows of several batches are joined into one, and differ in shape: "
            f"{[array.shape for array in arrays]}. Pad all batches to one shape "
            "(padded_shapes), or set AutoShardPolicy.DATA, which divides each batch by itself."
        )
    joined = np.concatenate(arrays)
    joined.flags.writeable = False
    return joined


def _index_rows(element: Element) -> Any:
    """Returns the indices of each row; None when they don't divide evenly."""
    indices, count = element.indices, len(next(leaves(element.value)))
    if indices is None or (len(indices) % count if count else len(indices)):
        return None
    return indices.reshape(count, -1) if count else indices
