"""Keys: what stands for things where these are compared."""

from __future__ import annotations

import cmath
import math
from typing import Any, Final, TypeAlias

import numpy as np

Key: TypeAlias = Any
"""Nested tuples with a hash."""

MOST_BYTES: Final = 1 << 16
"""The size of the arrays and bytes that are compared by what they hold, at most."""


class Kept(list[Any]):
    """The objects that stand in a key by their `id`.

    Attributes:
      followed: Those of which the key has what is read, by their `id` and that of the paths.
    """

    def __init__(self) -> None:
        super().__init__()
        self.followed: dict[tuple[int, int], Any] = {}


class Id(int):
    """The `id` of an object: no number of the user's."""

    __slots__ = ()


class Arrays(tuple[Key, ...]):
    """The keys of the arrays of an attribute."""

    __slots__ = ()


class Other(tuple[Key, ...]):
    """Which object an attribute holds: the `id` of the attribute's object, a class, and its own."""

    __slots__ = ()


def constant_key(value: Any) -> Key:
    """Returns the key of a constant, or of a number of NumPy: its type counts, as 1 equals True."""
    kind = type(value)
    if not isinstance(value, float | complex | np.inexact):
        return kind, value
    number = complex(value)
    signs = math.copysign(1, number.real), math.copysign(1, number.imag)
    if cmath.isnan(number) or (0 in (number.real, number.imag) and -1 in signs):
        return kind, str(value)  # nan equals nothing, not even itself, and -0.0 equals 0.0
    return kind, value


def buffer_key(buffer: Any) -> Key | None:
    """Returns the key of bytes that somebody may write to; None of more than are compared."""
    with memoryview(buffer) as view:
        if view.nbytes > MOST_BYTES:
            return None
        return type(buffer), view.format, view.shape, view.tobytes()
