"""Whether an array has been computed, asked without waiting for it."""

from __future__ import annotations

from typing import Any

import jax


def is_ready(array: jax.Array) -> bool:
    """Says whether an array has been computed; it must not be deleted.

    JAX's arrays have the method, its declared type does not.
    """
    declared: Any = array
    return bool(declared.is_ready())
