"""The replicas' results as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from distlab.values.distributed import Mirrored, PerReplica


def rows_of(value: PerReplica | Mirrored) -> list[np.ndarray]:
    """Waits for a value and returns its components, read from the devices at once."""
    if isinstance(value, Mirrored):
        return [np.asarray(value.array)]
    stacked = np.asarray(value.stacked)
    if value.shapes is None:
        return list(stacked)
    return [row[tuple(map(slice, shape))] for row, shape in zip(stacked, value.shapes, strict=True)]


def joined(value: Any) -> Any:
    """Returns the examples of all replicas, in replica order; scalars are stacked."""
    if not isinstance(value, PerReplica | Mirrored):
        return value
    rows = rows_of(value)
    return np.concatenate(rows) if rows[0].shape else np.stack(rows)


def mean_of(value: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Returns the mean of a value over the replicas that have examples.

    Args:
      value: What `run` returned.
      sizes: The number of each replica's examples.
    """
    if not isinstance(value, PerReplica):
        return np.asarray(value.array if isinstance(value, Mirrored) else value)
    rows = rows_of(value)
    full = [row for row, size in zip(rows, sizes, strict=True) if size] or rows
    return np.mean(np.stack(full), axis=0)
