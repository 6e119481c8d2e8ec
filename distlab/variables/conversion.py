"""Values given to variables, as arrays of the variable's shape and dtype."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from distlab.errors import ValueShapeError
from distlab.text.shown import shown
from distlab.values.checks import as_array
from distlab.values.operators import ArrayOperators
from distlab.values.stacks import require_no_stack


class _Typed(Protocol):
    """A named value of fixed shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


def as_value(value: Any, dtype: Any, what: str) -> jax.Array:
    """Returns an array-like or a variable as an array."""
    if isinstance(value, ArrayOperators):
        value = value.value()
    require_no_stack(value, what)
    if dtype is not None:
        _require_kept(value, dtype, what)
    return as_array(value, what, dtype)


def _require_kept(value: Any, dtype: Any, what: str) -> None:
    """Checks that Python's numbers keep their values, where JAX makes 1 of 1.5 for int32."""
    if not isinstance(value, bool | int | float | complex | list | tuple):
        return
    try:
        given, kind = np.asarray(value), jnp.dtype(dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return  # it holds something else, of which JAX decides
    if given.dtype.kind not in "biufc" or jnp.issubdtype(kind, jnp.complexfloating):
        return
    with np.errstate(all="ignore"):
        kept = given.real.astype(kind)
    if jnp.issubdtype(kind, jnp.floating):  # they may be rounded
        changed = (given.imag != 0) | (np.isfinite(given) & ~np.isfinite(kept))
    else:
        changed = given != kept
    if changed.any():
        raise ValueShapeError(
            f"{what} needs numbers of {kind}, got {shown(value)}, which would become "
            f"{shown(kept.tolist())}. Convert them, or use another dtype for the variable."
        )


def checked_value(variable: _Typed, value: Any, verb: str) -> jax.Array:
    """Returns a value as an array that can be assigned to a variable."""
    array = as_value(value, None, f"{variable.name}.{verb}")
    keys = jnp.issubdtype(variable.dtype, jax.dtypes.prng_key)
    weak = not keys and (array.aval.weak_type or not hasattr(value, "dtype"))
    if array.shape != variable.shape or (array.dtype != variable.dtype and not weak):
        raise ValueShapeError(
            f"{variable.name} is {variable.dtype}{list(variable.shape)}, and {verb} got "
            f"{array.dtype}{list(array.shape)}. Pass a value of that shape and dtype "
            "(array.astype changes the dtype)."
        )
    if weak:
        _require_kept(value, variable.dtype, f"{variable.name}.{verb}")
    return array if keys else array.astype(variable.dtype)
