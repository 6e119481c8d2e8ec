"""The replicas' results as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from distlab.devices.pieces import pieces
from distlab.values.distributed import Mirrored, PerReplica


def rows_of(value: PerReplica | Mirrored) -> list[np.ndarray]:
    """Waits for a value and returns its components.

    They are read device by device: JAX takes twice as long to make one array of a few numbers.
    """
    if isinstance(value, Mirrored):
        return [np.asarray(value.array)]
    rows = [row for _, piece in pieces(value.stacked) for row in np.asarray(piece)]
    if value.shapes is None:
        return rows
    return [row[tuple(map(slice, shape))] for row, shape in zip(rows, value.shapes, strict=True)]


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
