"""Checks of the verbs' arguments, made before a read."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1


def integer(verb: str, name: str, value: Any, at_least: int | None = None) -> int:
    """Returns an integer argument."""
    try:
        number = operator.index(_plain(value))
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        raise InvalidArgumentError(
            f"{name} of {verb} must be an integer, got {shown(value)}. Pass a "
            "whole number, such as int(x)."
        ) from None
    if not _LEAST <= number <= _MOST:
        raise InvalidArgumentError(
            f"{name} of {verb} must fit int64, got {shown(number)}. Use a number below 2^63."
        )
    if at_least is not None and number < at_least:
        raise InvalidArgumentError(
            f"{name} of {verb} must be at least {at_least}, got {number}. Pass {at_least} or more."
        )
    return number


def kept(value: Any) -> Any:
    """Returns a nest as it is when it is passed: what its owner writes to it later is not in it."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(map(kept, value))
    if type(value) is dict:
        return {name: kept(part) for name, part in value.items()}
    return value


def truth(verb: str, name: str, value: Any) -> bool:
    """Returns an argument that is True or False."""
    try:
        found = value.item() if hasattr(value, "item") else value
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        found = None
    if not isinstance(found, bool):
        raise InvalidArgumentError(
            f"{name} of {verb} must be True or False, got {shown(value)}. Write {name}=True, or "
            "leave it out."
        )
    return found


def optional_truth(verb: str, name: str, value: Any) -> bool | None:
    """Returns an argument that is True, False or None."""
    return None if value is None else truth(verb, name, value)


def _plain(value: Any) -> Any:
    """Returns the Python number of an array with one; True and False are no numbers."""
    found = value.item() if hasattr(value, "item") else value
    if isinstance(found, bool):
        raise TypeError("a truth value")
    return found


class ChosenSeed(int):
    """A random seed, chosen because the user gave none: several workers replace it by one."""


def no_end(verb: str) -> InvalidArgumentError:
    """Returns what a verb raises that would never come to the end of its dataset."""
    return InvalidArgumentError(f"{verb} needs a dataset with an end. Use take(n) before.")


def seed_of(verb: str, seed: Any) -> int:
    """Returns the argument `seed`; a `ChosenSeed` if it is None."""
    return ChosenSeed(secrets.randbits(63)) if seed is None else integer(verb, "seed", seed)


def parallel_calls(verb: str, value: Any) -> int | None:
    """Returns the argument num_parallel_calls: a positive number, -1 for AUTOTUNE, or None."""
    if value is None:
        return None
    number = integer(verb, "num_parallel_calls", value, at_least=-1)
    if number == 0:
        raise InvalidArgumentError(
            f"num_parallel_calls of {verb} must be positive, AUTOTUNE or None, got 0. Leave it out "
            "to call the function in the thread that reads."
        )
    return number


def function(verb: str, value: Any, name: str | None = None) -> Callable[..., Any]:
    """Returns a function argument."""
    if not callable(value):
        raise InvalidArgumentError(
            f"The argument of {verb} must be a function of an element, got a "
            f"{type(value).__name__}: {shown(value)}. Write for example lambda x: x."
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
