"""NumPy's arrays that devices hold, and those that no device does, such as too wide ones."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import numpy as np

_WIDEST: Final = {"f": 8, "c": 16}
"""The bytes of the widest numbers on devices, by the kind of dtype."""


def are_of_devices(dtype: np.dtype[Any]) -> bool:
    """Returns whether devices can hold numbers of a dtype, whatever the byte order."""
    match dtype.kind:
        case "b" | "i" | "u":
            return True
        case "f" | "c":
            return dtype.itemsize <= _WIDEST[dtype.kind]
        case "V":  # bfloat16 and smaller ones, but not bytes
            return jnp.issubdtype(dtype, np.number)
    return False


def unshared(value: Any) -> Any:
    """Returns a copy of a NumPy array, whose memory JAX may use; other values as they are."""
    return np.array(value) if isinstance(value, np.ndarray) else value
