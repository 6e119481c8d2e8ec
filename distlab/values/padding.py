"""Arrays padded to the shape of the largest replica's."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from distlab.devices import jax_internals


def padded(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Returns an array padded at the ends of its axes; keys with keys of zeros.

    Args:
      array: The array.
      shape: The shape to which it is padded.
    """
    if array.shape == tuple(shape):
        return array
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = jax.random.key_data(array)
        keys: jax.Array = jax.random.wrap_key_data(
            padded(data, (*shape, *data.shape[array.ndim :])),
            impl=jax_internals.key_impl(array.dtype),
        )
        return keys
    return jnp.pad(array, [(0, to - n) for n, to in zip(array.shape, shape, strict=True)])
