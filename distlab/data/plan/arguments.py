"""Checks of the verbs' arguments, by one table, made before a read."""

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


_COUNTS: Final = {
    **dict.fromkeys(("batch_size", "size", "stride", "window_size", "shuffle.buffer_size"), 1),
    **dict.fromkeys(("block_length", "cycle_length", "shift", "num_shards"), 1),
    **dict.fromkeys(("num_parallel_calls", "num_parallel_reads"), 1),
    **dict.fromkeys(("count", "take.count", "skip.count", "seed", "start", "step"), _LEAST),
    "index": 0,
    "prefetch.buffer_size": -1,
}
"""The smallest value of a whole number, by its name or by verb and name; others are flags."""
_AUTO: Final = ("cycle_length", "index", "num_parallel_calls", "num_parallel_reads", "num_shards")
"""Arguments that may be -1, AUTOTUNE or SHARD_HINT, besides."""
_OPTIONAL: Final = (
    *("block_length", "count", "cycle_length", "num_parallel_calls", "num_parallel_reads"),
    *("prefetch.buffer_size", "seed", "shift", "rerandomize_each_iteration"),
    *("reshuffle_each_iteration", "shuffle", "synchronous"),
)
"""Arguments that may be None."""


def checked(verb: str, **given: Any) -> list[Any]:
    """Returns arguments as Python numbers, bools or None, by the rules of their names."""
    return [_checked(verb, name, value) for name, value in given.items()]


def _checked(verb: str, name: str, value: Any) -> Any:
    rule = f"{verb}.{name}" if f"{verb}.{name}" in _COUNTS else name
    if value is None and rule in _OPTIONAL:
        return None
    if rule not in _COUNTS:
        return _truth(verb, name, value)
    number = integer(verb, name, value)
    auto = rule in _AUTO and number == -1
    return number if auto else integer(verb, name, number, _COUNTS[rule])


def integer(verb: str, name: str, value: Any, at_least: int = _LEAST) -> int:
    """Returns an integer argument."""
    try:
        found = value.item() if hasattr(value, "item") else value  # of an array with one number
        if isinstance(found, bool):
            raise TypeError
        number = operator.index(found)
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        raise InvalidArgumentError(
            f"{name} of {verb} must be an integer, got {shown(value)}. Pass a "
            "whole number, such as int(x)."
        ) from None
    if not _LEAST <= number <= _MOST:
        raise InvalidArgumentError(
            f"{name} of {verb} must fit int64, got {shown(number)}. Use a number below 2^63."
        )
    if number < at_least:
        raise InvalidArgumentError(
            f"{name} of {verb} must be at least {at_least}, got {number}. Pass {at_least} or more."
        )
    return number


def _truth(verb: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InvalidArgumentError(
            f"{name} of {verb} must be True or False, got {shown(value)}. Write {name}=True, or "
            "leave it out."
        )
    return bool(value)


class ChosenSeed(int):
    """A random seed, chosen because the user gave none: several workers replace it by one."""


def seed_of(verb: str, seed: Any) -> int:
    """Returns the argument `seed`; a `ChosenSeed` if it is None."""
    (number,) = checked(verb, seed=seed)
    return ChosenSeed(secrets.randbits(63)) if number is None else int(number)


def no_end(verb: str) -> InvalidArgumentError:
    """Returns the error of a verb that would never reach the end of its dataset."""
    return InvalidArgumentError(f"{verb} needs a dataset with an end. Use take(n) first.")


def function(verb: str, value: Any) -> Callable[..., Any]:
    """Returns a function argument."""
    if not callable(value):
        raise InvalidArgumentError(
            f"The argument of {verb} must be a function of an element, got a "
            f"{type(value).__name__}: {shown(value)}. Write for example lambda x: x."
        )
    return value
