"""Facts, and lists of things that are too long for a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from distlab.text.units import count_text

Facts: TypeAlias = dict[str, Any]
"""Texts, numbers and flags by the names that the page's HTML and scripts use."""

NOTHING: Final = "\u2013"
"""Stands for a value that is not known."""

MOST_ROWS: Final = 32
"""Devices or replicas that have a row each."""


def first_rows(texts: Iterable[str], count: int) -> list[str]:
    """Returns the first of `count` texts, and a last one with the number of the others."""
    first = list(itertools.islice(texts, MOST_ROWS))
    left = count - MOST_ROWS
    return [*first, f"and {count_text(left)} more"] if left > 0 else first
