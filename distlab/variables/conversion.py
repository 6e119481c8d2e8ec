"""Values given to variables, as arrays of the variable's shape and dtype."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.jax_internals import placing
from distlab.errors import ValueShapeError
from distlab.text.shown import said_by_jax, shown
from distlab.values.checks import require_alive
from distlab.values.operators import ArrayOperators
from distlab.values.plain_arrays import unshared
from distlab.values.stacks import require_no_stack
from distlab.values.wide_integers import require_kept


class _Typed(Protocol):
    """A named value of fixed shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


def as_value(value: Any, dtype: Any, what: str) -> jax.Array:
    """Returns an array-like or a variable as an array."""
    if isinstance(value, ArrayOperators):
        value = value.value()
    require_alive(value, f"The value of {what}")
    require_no_stack(value, what)
    if dtype is None:
        require_kept(value, f"The value of {what}")
    else:
        _require_kept(value, dtype, what)
    try:
        with placing():
            return jnp.asarray(unshared(value), dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueShapeError(
            f"{what} needs an array or numbers, got a {type(value).__name__}: {shown(value)}. "
            f"{said_by_jax(error, 400)} Pass an array, or a list of numbers."
        ) from error


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
