"""Checks of the verbs' arguments, made before a read."""

from __future__ import annotations

import operator
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


def function(verb: str, value: Any) -> Callable[..., Any]:
    """Returns a function argument.

    Raises:
      InvalidArgumentError: `value` is not callable.
    """
    if not callable(value):
        raise InvalidArgumentError(
            f"The argument of {verb} must be a function of an element, got {type(value).__name__}"
        )
    checked: Callable[..., Any] = value
    return checked
