"""Arrays padded to one shape, in which replicas' components of different shapes lie.

A component begins at the origin of the common shape. One with fewer axes has axes of length 1
added at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.key_data import is_key, through_data


def common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the smallest shape in which arrays of all these shapes fit."""
    rank = max(map(len, shapes))
    extended = [_extended(shape, rank) for shape in shapes]
    return tuple(int(n) for n in np.max(np.array(extended, dtype=np.int64), axis=0))


def padded(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Returns an array padded at the ends of its axes; keys with keys of zeros."""
    if array.shape == tuple(shape):
        return array
    if is_key(array):
        return through_data(lambda data: padded(data, (*shape, *data.shape[array.ndim :])), array)
    array = array.reshape(_extended(array.shape, len(shape)))
    return jnp.pad(array, [(0, to - n) for n, to in zip(array.shape, shape, strict=True)])


def place_of(shape: tuple[int, ...], rank: int) -> tuple[Any, ...]:
    """Returns the index of a component of this shape in its padded array of so many axes."""
    return (*map(slice, shape), *[0] * (rank - len(shape)))


def _extended(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (*shape, *[1] * (rank - len(shape)))
