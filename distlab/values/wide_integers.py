"""Whole numbers of 64 bits on devices, where JAX keeps 32 bits unless `jax_enable_x64` is set."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np

from distlab.errors import DistlabError, ValueShapeError

_WIDE: Final = 8
"""The bytes of a number of 64 bits."""


def require_kept(value: Any, what: str, kind: type[DistlabError] = ValueShapeError) -> None:
    """Checks that a value holds the same numbers on a device, where JAX keeps the low bits."""
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "iu":
        return
    if value.dtype.itemsize < _WIDE or not value.size:
        return
    kept = np.dtype(jax.dtypes.canonicalize_dtype(value.dtype))
    if kept.itemsize == _WIDE:
        return
    bounds = np.iinfo(kept)
    for extreme in (value.max(), value.min()):
        if not bounds.min <= extreme <= bounds.max:
            raise kind(
                f"{what}: {value.dtype} value {extreme} overflows {kept} (it would become "
                f"{extreme.astype(kept)}); JAX's default is 32-bit. Call "
                "jax.config.update('jax_enable_x64', True) when the program begins, or use "
                "smaller numbers, such as array % 2**31 of hashes."
            )
