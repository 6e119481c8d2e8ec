"""Arrays padded to the shape of the largest replica's."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from distlab.devices.key_data import is_key, through_data


def padded(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Returns an array padded at the ends of its axes; keys with keys of zeros."""
    if array.shape == tuple(shape):
        return array
    if is_key(array):
        return through_data(lambda data: padded(data, (*shape, *data.shape[array.ndim :])), array)
    return jnp.pad(array, [(0, to - n) for n, to in zip(array.shape, shape, strict=True)])
