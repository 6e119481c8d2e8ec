"""The replicas' results as NumPy arrays."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np

from distlab.devices.pieces import pieces
from distlab.strategies.abstract import Strategy
from distlab.values.distributed import Mirrored, PerReplica
from distlab.values.padding import place_of


def rows_of(value: PerReplica | Mirrored) -> dict[int, np.ndarray]:
    """Waits for a value and returns this process's components by replica.

    They are read device by device: JAX takes twice as long to make one array of a few numbers.
    """
    if isinstance(value, Mirrored):
        return {0: np.asarray(value.array)}
    rows = {
        first + i: row
        for first, piece in pieces(value.stacked)
        for i, row in enumerate(np.asarray(piece))
    }
    if value.shapes is None:
        return rows
    return {i: row[place_of(value.shapes[i], row.ndim)] for i, row in rows.items()}


def joined(value: Any, strategy: Strategy) -> Any:
    """Returns the examples of all replicas, of all workers; scalars are stacked.

    Examples are in replica order, and with several workers in that of the input: the first
    replica of each worker, then the second ones, as in `_multi_worker_concat` of Keras on
    TensorFlow.
    """
    if not isinstance(value, PerReplica | Mirrored):
        return value
    if isinstance(value, PerReplica) and strategy.mesh.shared:
        return _joined_of_workers(value, strategy)
    rows = list(rows_of(value).values())
    return np.concatenate(rows) if rows[0].shape else np.stack(rows)


def _joined_of_workers(value: PerReplica, strategy: Strategy) -> np.ndarray:
    workers: dict[int, list[np.ndarray]] = {}
    devices = strategy.mesh.devices
    shapes = value.shapes or (value.stacked.shape[1:],) * len(devices)
    ends = np.cumsum([shape[0] for shape in shapes])
    parts = np.split(np.asarray(strategy.gather(value, axis=0)), ends[:-1])
    for device, part in zip(devices, parts, strict=True):
        workers.setdefault(device.process_index, []).append(part)
    turns = zip_longest(*workers.values())
    return np.concatenate([part for turn in turns for part in turn if part is not None])


def mean_of(value: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Returns the mean of a value over the replicas that have examples."""
    if not isinstance(value, PerReplica):
        return np.asarray(value.array if isinstance(value, Mirrored) else value)
    rows = rows_of(value)
    full = [row for replica, row in rows.items() if sizes[replica]] or list(rows.values())
    return np.mean(np.stack(full), axis=0)
