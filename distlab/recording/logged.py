"""Checks of what is logged: names, steps and numbers."""

from __future__ import annotations

import operator
from collections.abc import Mapping
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
    if not 0 < len(plain) <= MOST_LETTERS:
        raise ArgumentValueError(
            f"{what} has a name of 1 to {MOST_LETTERS} characters, got {len(plain):,}: "
            f'{shown(plain)}. Use a short one, such as "loss".'
        )
    try:
        plain.encode()
    except UnicodeEncodeError:
        raise ArgumentValueError(
            f"{what} has a name that can be written in UTF-8, got {shown(plain)}. Remove its "
            'surrogates, for example with name.encode("utf-8", "replace").decode().'
        ) from None
    return plain


def step_and_values(first: Any, named: dict[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Returns the step and the values of a call of `log`, which may give either in two ways."""
    step = named.pop("step", None)
    if isinstance(first, Mapping):
        return step, {**first, **named}
    return step if first is None else first, named


def checked_step(step: Any) -> Any:
    """Returns a step as an `int`, or as an array that JAX is still computing."""
    if isinstance(step, Mapping | list | tuple):  # values, such as {"epoch": 3}, and no step
        raise ArgumentTypeError(
            f"step is a whole number, got a {type(step).__name__}: {shown(step)}. Pass values by "
            "their names, such as log(loss=0.5), or log(**values) for a dict."
        )
    leaf = _only_leaf(step)
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
        if leaf.shape == () and jnp.issubdtype(leaf.dtype, np.integer):
            return _step_in(leaf)
    elif not isinstance(leaf, bool | jax.core.Tracer):
        try:
            number = operator.index(leaf)
        except Exception:  # noqa: BLE001 - any code of the user's
            number = None
        if number is not None:
            return whole_step(number, least=0)
    raise ArgumentTypeError(
        f"step is a whole number, got a {type(step).__name__}: {shown(step)}. Pass the number of "
        "the step, or leave it out to use that of the last step."
    )


def _step_in(array: jax.Array) -> int | jax.Array:
    """Returns the step in an array if it is computed, else the array."""
    if array.is_deleted():
        raise DonatedError(
            f"The array with the step was deleted, or donated to an earlier call: {shown(array)}. "
            "Log with the result of that call."
        )
    return whole_step(array, least=0) if is_ready(array) else array


def whole_step(step: Any, least: int = -1) -> int:
    """Returns a step as an `int`; reads an array."""
    number = int(step)
    if not least <= number <= LARGEST:
        raise ArgumentValueError(
            f"step is a whole number from 0 to 2**63 - 1, got {shown(number)}. Pass the number of "
            "the step, or leave it out to use that of the last step."
        )
    return number


def checked_number(name: str, value: Any) -> Any:
    """Returns the one real number in a value: as a `float`, or as an array of JAX."""
    # Of a dict the name of its value would be lost.
    leaf: Any = value if isinstance(value, Mapping | list | tuple) else _only_leaf(value)
    if isinstance(leaf, jax.core.Tracer):
        raise ValueShapeError(
            f"log accepts numbers, but {name!r} is being traced by JAX. "
            "Return it from the function and log the result."
        )
    if not _is_real(leaf):
        found = f"shape {leaf.shape} and dtype {leaf.dtype}" if _is_array(leaf) else shown(value)
        raise ValueShapeError(
            f"log accepts one real number for each name, got {name!r} with {found}. "
            + _remedy_of(name, value)
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


def _remedy_of(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return f'Give each value in it a name of its own, such as {{"{name}/loss": loss}}.'
    return 'Reduce it first, for example with strategy.reduce("MEAN", value, axis=None).'


def _only_leaf(value: Any) -> Any:
    """Returns the only leaf of a structure, of a variable its value; other values unchanged."""
    try:
        leaves = jax.tree.leaves(value)
    except Exception:  # noqa: BLE001 - such as a dictionary whose keys can't be sorted
        return value
    if len(leaves) != 1:
        return value
    (leaf,) = leaves
    try:
        return leaf.__jax_array__() if hasattr(leaf, "__jax_array__") else leaf
    except Exception:  # noqa: BLE001 - any code of the user's
        return leaf


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray | np.generic)


def _is_real(value: Any) -> bool:
    if _is_array(value):
        dtype = value.dtype
        real = jnp.issubdtype(dtype, np.number) or dtype == np.bool_
        return bool(value.shape == () and real and not jnp.issubdtype(dtype, np.complexfloating))
    if isinstance(value, int | float):
        return True
    # A number of another library, such as a tensor of PyTorch.
    return hasattr(value, "__float__") and getattr(value, "shape", None) == ()
