"""Variables that a function reads while JAX differentiates it by their values.

TensorFlow's tape follows reads of variables. JAX differentiates by a function's arguments alone:
what the function reads of a variable is a constant to it.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import jax

from distlab.devices import jax_internals
from distlab.errors import GradientWarning
from distlab.user_code import warn

_read: Final[dict[int, tuple[weakref.ref[jax.Array], weakref.ref[Any]]]] = {}
"""By the number of an array in memory: the array, and the variable of which it was read last.

Reads may return several arrays of one variable, and one array of several variables that were
assigned from each other.
"""


def warn_of_constant(variable: Any, value: jax.Array) -> None:
    """Warns where a variable is read in a function that is differentiated by its value."""
    arguments = jax_internals.differentiated()
    if not any(one is variable or _is_of(one, variable) for one in arguments):
        _note(variable, value)
        return
    name = variable.name
    warn(
        f"{name} is read in a function that JAX differentiates by the value of {name}. The "
        "gradient leaves that read out: it is 0 where the function does not use its argument. "
        f"Compute with the argument in place of {name}. Where a constant is meant, read it "
        "before jax.grad.",
        GradientWarning,
    )


def _note(variable: Any, value: jax.Array) -> None:
    number = id(value)
    array = weakref.ref(value, lambda _: _read.pop(number, None))
    _read[number] = array, weakref.ref(variable)


def _is_of(one: Any, variable: Any) -> bool:
    """Whether an array was read of a variable before it was differentiated by."""
    noted = _read.get(id(one))
    return noted is not None and noted[0]() is one and noted[1]() is variable
