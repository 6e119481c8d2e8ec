"""Checks of arguments that are True or False."""

from __future__ import annotations

from typing import Any

from distlab.errors import ArgumentTypeError
from distlab.text.shown import shown


def require_flag(name: str, value: Any) -> None:
    """Checks that an argument is True or False: "no" and "false" would count as true.

    Args:
      name: The name of the argument.
      value: Its value.

    Raises:
      ArgumentTypeError: It is another value.
    """
    if not isinstance(value, bool):
        raise ArgumentTypeError(
            f"{name} must be True or False, got {shown(value)}. Write {name}=True, or leave it out."
        )
