"""Variables that a function reads while JAX differentiates it by their values.

TensorFlow's tape follows reads of variables. JAX differentiates by a function's arguments alone:
what the function reads of a variable is a constant to it.
"""

from __future__ import annotations

from typing import Any

import jax

from distlab.devices import jax_internals
from distlab.errors import GradientWarning
from distlab.user_code import warn


def warn_of_constant(name: str, variable: object, value: jax.Array) -> None:
    """Warns where a variable is read in a function that is differentiated by its value.

    Args:
      name: The variable's name.
      variable: The variable.
      value: What was read.

    Warns:
      GradientWarning: The value, or the variable, is an argument of `jax.grad` or the like.
    """
    if not jax_internals.being_transformed():
        return
    if any(one is variable or _is_same(one, value) for one in jax_internals.differentiated()):
        warn(
            f"{name} is read in a function that JAX differentiates by the value of {name}. The "
            "gradient leaves that read out: it is 0 where the function does not use its argument. "
            f"Compute with the argument in place of {name}. Where a constant is meant, read it "
            "before jax.grad.",
            GradientWarning,
        )


def _is_same(one: Any, value: jax.Array) -> bool:
    """Whether two arrays are one: copies that are read twice may be two objects of one buffer."""
    if one is value:
        return True
    if not isinstance(one, jax_internals.ConcreteArray):
        return False
    return isinstance(value, jax_internals.ConcreteArray) and _buffer(one) == _buffer(value)


def _buffer(array: jax.Array) -> int | None:
    return array.unsafe_buffer_pointer() if array.is_fully_addressable else None
