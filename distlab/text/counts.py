"""Checks of counts and numbers."""

from __future__ import annotations

import math
from typing import Any


def is_count(value: Any, most: int | None = None) -> bool:
    """Returns whether a value is a whole number from 0 to `most`; True and False are not."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= 0
        and (most is None or value <= most)
    )


def is_positive_count(value: Any, most: int | None = None) -> bool:
    """Returns whether a value is a whole number from 1 to `most`; True is not."""
    return is_count(value, most) and value > 0


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite real number; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False
