"""Checks of the verbs' arguments, made before a read."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable
from typing import Any

from distlab.errors import InvalidArgumentError


def integer(verb: str, name: str, value: Any, at_least: int | None = None) -> int:
    """Returns an integer argument.

    Raises:
      InvalidArgumentError: `value` is not an integer, or is less than `at_least`.
    """
    try:
        number = operator.index(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name} of {verb} must be an integer, got {value!r}") from None
    if at_least is not None and number < at_least:
        raise InvalidArgumentError(f"{name} of {verb} must be at least {at_least}, got {number}")
    return number


def seed_of(verb: str, seed: Any) -> int:
    """Returns the argument `seed`; a random one if it is None."""
    return secrets.randbits(63) if seed is None else integer(verb, "seed", seed)


def parallel_calls(verb: str, value: Any) -> int | None:
    """Returns the argument num_parallel_calls: a positive number, -1 for AUTOTUNE, or None.

    Raises:
      InvalidArgumentError: It is another value.
    """
    if value is None:
        return None
    number = integer(verb, "num_parallel_calls", value, at_least=-1)
    if number == 0:
        raise InvalidArgumentError(
            f"num_parallel_calls of {verb} must be positive, AUTOTUNE or None, got 0"
        )
    return number


def function(verb: str, value: Any, name: str | None = None) -> Callable[..., Any]:
    """Returns a function argument.

    Args:
      verb: The verb.
      value: The argument.
      name: The name of the operation, which is added to errors of the function.

    Raises:
      InvalidArgumentError: `value` is not callable.
    """
    if not callable(value):
        raise InvalidArgumentError(
            f"The argument of {verb} must be a function of an element, got {type(value).__name__}"
        )
    if name is None:
        checked: Callable[..., Any] = value
        return checked

    def noting(*args: Any) -> Any:
        try:
            return value(*args)
        except Exception as error:
            error.add_note(f"This happened in the dataset's {verb} of name {name!r}.")
            raise

    return noting
