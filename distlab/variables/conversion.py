"""Values given to variables, as arrays of the variable's shape and dtype."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp

from distlab.errors import ValueShapeError
from distlab.text.shown import shown, shown_text
from distlab.values.checks import require_alive, require_plain_array
from distlab.values.nests import require_nest
from distlab.values.operators import ArrayOperators
from distlab.values.stacks import require_no_stack


class _Typed(Protocol):
    """A named value of fixed shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


def as_value(value: Any, dtype: Any, what: str) -> jax.Array:
    """Returns an array-like or a variable as an array.

    Args:
      value: The array-like or variable.
      dtype: The dtype of the result; None keeps that of the value.
      what: The name of the variable or verb, for the message.

    Raises:
      ValueShapeError: The value is neither an array nor numbers, or is the array of all
        components of a per-replica value.
      DonatedError: It is an array that was deleted.
    """
    if isinstance(value, ArrayOperators):
        value = value.value()
    require_alive(value, f"The value of {what}")
    require_no_stack(value, what)
    require_plain_array(value, f"The value of {what}")
    require_nest(value, f"The value of {what}")
    if dtype is not None:
        _require_dtype(dtype, what)
    try:
        return jnp.asarray(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueShapeError(
            f"{what} needs an array or numbers, got a {type(value).__name__}: {shown(value)}. "
            f"JAX says: {shown_text(error):.400}. Pass an array, or a list of numbers."
        ) from error


def _require_dtype(dtype: Any, what: str) -> None:
    try:
        jnp.zeros((), dtype)
    except Exception as error:
        raise ValueShapeError(
            f"The dtype of {what} must be one of JAX's, got {shown(dtype)}. Pass for example "
            "jnp.float32, or leave it out."
        ) from error


def checked_value(variable: _Typed, value: Any, verb: str) -> jax.Array:
    """Returns a value as an array that can be assigned to a variable.

    Args:
      variable: The variable.
      value: The value.
      verb: The name of the verb, for the message.

    Raises:
      ValueShapeError: The shape or dtype is not the variable's.
    """
    array = as_value(value, None, f"{variable.name}.{verb}")
    weak = array.aval.weak_type or not hasattr(value, "dtype")
    if array.shape != variable.shape or (array.dtype != variable.dtype and not weak):
        raise ValueShapeError(
            f"{variable.name} is {variable.dtype}{list(variable.shape)}, and {verb} got "
            f"{array.dtype}{list(array.shape)}. Pass a value of that shape and dtype "
            "(array.astype changes the dtype)."
        )
    return array.astype(variable.dtype)
