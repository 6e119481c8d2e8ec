"""Checks of the verbs' arguments, by one table, made before a read."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1


class _Number(NamedTuple):
    """A rule for whole numbers.

    Attributes:
      least: The smallest one.
      none: Whether None is accepted.
      auto: Whether -1, AUTOTUNE or SHARD_HINT, is accepted besides.
    """

    least: int = _LEAST
    none: bool = False
    auto: bool = False


class _Truth(NamedTuple):
    """A rule for True and False.

    Attributes:
      none: Whether None is accepted.
    """

    none: bool = False


_COUNT: Final = _Number(1)
_CALLS: Final = _Number(1, none=True, auto=True)
_RULES: Final[dict[str, _Number | _Truth]] = {
    "batch_size": _COUNT,
    "block_length": _Number(1, none=True),
    "count": _Number(none=True),
    "cycle_length": _CALLS,
    "index": _Number(0, auto=True),
    "num_parallel_calls": _CALLS,
    "num_parallel_reads": _CALLS,
    "num_shards": _Number(1, auto=True),
    "prefetch.buffer_size": _Number(-1, none=True),
    "seed": _Number(none=True),
    "shift": _Number(1, none=True),
    "shuffle.buffer_size": _COUNT,
    "size": _COUNT,
    "skip.count": _Number(),
    "start": _Number(),
    "step": _Number(),
    "stride": _COUNT,
    "take.count": _Number(),
    "window_size": _COUNT,
    "drop_remainder": _Truth(),
    "no_padding": _Truth(),
    "pad_to_bucket_boundary": _Truth(),
    "rerandomize_each_iteration": _Truth(none=True),
    "reshuffle_each_iteration": _Truth(none=True),
    "shuffle": _Truth(none=True),
    "stop_on_empty_dataset": _Truth(),
    "synchronous": _Truth(none=True),
}
"""The rule of an argument by its name, or by verb and name where verbs differ."""


def checked(verb: str, **given: Any) -> list[Any]:
    """Returns arguments as Python numbers, bools or None, by the rules of their names."""
    return [_checked(verb, name, value) for name, value in given.items()]


def _checked(verb: str, name: str, value: Any) -> Any:
    rule = _RULES.get(f"{verb}.{name}") or _RULES[name]
    if value is None and rule.none:
        return None
    if isinstance(rule, _Truth):
        return _truth(verb, name, value)
    number = integer(verb, name, value)
    return number if rule.auto and number == -1 else integer(verb, name, number, rule.least)


def integer(verb: str, name: str, value: Any, at_least: int = _LEAST) -> int:
    """Returns an integer argument."""
    try:
        found = _plain(value)
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
    try:
        found = _plain(value)
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        found = None
    if not isinstance(found, bool):
        raise InvalidArgumentError(
            f"{name} of {verb} must be True or False, got {shown(value)}. Write {name}=True, or "
            "leave it out."
        )
    return found


def _plain(value: Any) -> Any:
    """Returns the Python number of an array with one."""
    return value.item() if hasattr(value, "item") else value


def kept(value: Any) -> Any:
    """Returns a copy of a nest, so that later writes by its owner don't reach it."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (list, tuple):
        return type(value)(map(kept, value))
    if type(value) is dict:
        return {name: kept(part) for name, part in value.items()}
    return value


class ChosenSeed(int):
    """A random seed, chosen because the user gave none: several workers replace it by one."""


def seed_of(verb: str, seed: Any) -> int:
    """Returns the argument `seed`; a `ChosenSeed` if it is None."""
    (number,) = checked(verb, seed=seed)
    return ChosenSeed(secrets.randbits(63)) if number is None else int(number)


def no_end(verb: str) -> InvalidArgumentError:
    """Returns the error of a verb that would never reach the end of its dataset."""
    return InvalidArgumentError(f"{verb} needs a dataset with an end. Use take(n) before.")


def function(verb: str, value: Any, name: str | None = None) -> Callable[..., Any]:
    """Returns a function argument."""
    if not callable(value):
        raise InvalidArgumentError(
            f"The argument of {verb} must be a function of an element, got a "
            f"{type(value).__name__}: {shown(value)}. Write for example lambda x: x."
        )
    if name is None:
        checked_function: Callable[..., Any] = value
        return checked_function

    def noting(*args: Any) -> Any:
        try:
            return value(*args)
        except Exception as error:
            error.add_note(f"This happened in the dataset's {verb} of name {name!r}.")
            raise

    return noting
