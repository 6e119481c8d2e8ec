"""Checks of what is logged: names, steps and numbers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices.jax_internals import is_ready
from distlab.errors import ArgumentTypeError, ArgumentValueError, DonatedError, ValueShapeError
from distlab.text.shown import shown

LARGEST: Final = (1 << 63) - 1
"""The largest whole number of a run file."""

MOST_LETTERS: Final = 500
"""The length of the longest name."""


def checked_name(name: Any, what: str = "A logged value") -> str:
    """Returns a name that can be stored, as a plain string."""
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"{what} has a string as its name, got a {type(name).__name__}: {shown(name)}. "
            'Use a name such as "loss".'
        )
    plain = str.__str__(name)
    if not 0 < len(plain) <= MOST_LETTERS or plain.encode("utf-8", "replace").decode() != plain:
        raise ArgumentValueError(
            f"{what} has a name of 1 to {MOST_LETTERS} characters that UTF-8 can hold, got "
            f'{len(plain):,}: {shown(plain)}. Use a short one, such as "loss".'
        )
    return plain


def step_and_values(first: Any, named: dict[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Returns the step and the values of a call of `log`, which may give either in two ways."""
    step = named.pop("step", None)
    if isinstance(first, Mapping):
        return step, {**first, **named}
    return step if first is None else first, named


def checked_step(step: Any) -> int | jax.Array:
    """Returns a step as an `int`, or as an array that JAX is still computing."""
    leaf = _value_of(step)
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
        if leaf.is_deleted():
            raise DonatedError(
                "The array with the step was deleted, or donated to an earlier call: "
                f"{shown(leaf)}. Log with the result of that call."
            )
        if leaf.shape == () and jnp.issubdtype(leaf.dtype, np.integer):
            return whole_step(leaf, least=0) if is_ready(leaf) else leaf
    elif not isinstance(leaf, bool):
        number = None
        with suppress(Exception):  # any code of the user's
            number = operator.index(leaf)
        if number is not None:
            return whole_step(number, least=0)
    raise ArgumentTypeError(
        f"step is a whole number, got a {type(step).__name__}: {shown(step)}. Pass the number of "
        "the step and name the values: log(7, loss=0.5)."
    )


def whole_step(step: Any, least: int = -1) -> int:
    """Returns a step as an `int`; reads an array."""
    number = int(step)
    if not least <= number <= LARGEST:
        raise ArgumentValueError(
            f"step is a whole number from 0 to 2**63 - 1, got {shown(number)}. Pass the number of "
            "the step, or leave it out to use that of the last step."
        )
    return number


def checked_number(name: str, value: Any) -> float | jax.Array:
    """Returns the one real number in a value: as a `float`, or as an array of JAX."""
    leaf = _value_of(value)
    if isinstance(leaf, jax.core.Tracer):
        raise ValueShapeError(
            f"log accepts numbers, but {name!r} is being traced by JAX. "
            "Return it from the function and log the result."
        )
    if not _is_real(leaf):
        found = f"shape {leaf.shape} and dtype {leaf.dtype}" if _is_array(leaf) else shown(value)
        remedy = 'Pass float(value), or reduce it: strategy.reduce("MEAN", value, axis=None).'
        if isinstance(value, Mapping):
            remedy = f'Give each value in it a name of its own, such as {{"{name}/loss": loss}}.'
        raise ValueShapeError(
            f"log accepts one real number for each name, got {name!r} with {found}. {remedy}"
        )
    if isinstance(leaf, jax.Array):
        if leaf.is_deleted():
            raise DonatedError(
                f"The value logged as {name!r} was deleted, or donated to an earlier call: "
                f"{shown(leaf)}. Log the result of that call."
            )
        return leaf
    try:
        return float(leaf)
    except Exception as error:
        raise ValueShapeError(
            f"log accepts numbers that a float can hold, got {name!r} with {shown(value)} "
            f"({error}). Log its logarithm, or leave it out."
        ) from error


def _value_of(value: Any) -> Any:
    """Returns the array in a variable or a value of one replica; other values unchanged."""
    if not isinstance(value, Mapping | list | tuple | np.generic | np.ndarray):
        leaves = jax.tree.leaves(value)
        if len(leaves) == 1:
            (value,) = leaves
    if hasattr(value, "__jax_array__"):
        with suppress(Exception):  # any code of the user's
            return value.__jax_array__()
    return value


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray | np.generic)


def _is_real(value: Any) -> bool:
    if _is_array(value):
        dtype = value.dtype
        real = jnp.issubdtype(dtype, np.number) or dtype == np.bool_
        return bool(value.shape == () and real and not jnp.issubdtype(dtype, np.complexfloating))
    # Or a number of another library, such as a tensor of PyTorch.
    return isinstance(value, int | float) or (
        hasattr(value, "__float__") and getattr(value, "shape", None) == ()
    )
