"""Arrays of random keys, and their data: keys can't be padded, added or read as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices import jax_internals


def is_key(value: Any) -> bool:
    """Returns whether an array, or an abstract one, holds random keys."""
    return bool(jnp.issubdtype(value.dtype, jax.dtypes.prng_key))


def through_data(change: Callable[[Any], Any], keys: jax.Array) -> jax.Array:
    """Returns keys whose data was changed."""
    data = change(jax.random.key_data(keys))
    changed: jax.Array = jax.random.wrap_key_data(data, impl=jax_internals.key_impl(keys.dtype))
    return changed


def bits(array: jax.Array | np.ndarray) -> bytes:
    """Returns the bytes of an array's numbers, or of its keys' data; waits for them."""
    return np.asarray(jax_internals.plain(array)).tobytes()
