"""Functions that need Python's numbers while JAX traces them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax

from distlab.errors import NeedsPythonError
from distlab.values.checks import function_name

NEEDS_PYTHON: Final = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)
"""Errors JAX raises for values needed at trace time."""


def needs_python(
    fn: Callable[..., Any], verb: str, error: Exception, otherwise: str = ""
) -> NeedsPythonError:
    """Returns the error that names the function, and what to use instead of Python."""
    way = f"; {otherwise}" if otherwise else "."
    return NeedsPythonError(
        f"{function_name(fn)} needs a Python number or NumPy array while {verb} traces it, when "
        "only shapes and dtypes are known. Use jnp.where or jax.lax.cond instead of `if`, and "
        f"jnp instead of np{way} JAX reports: {error}"
    )
