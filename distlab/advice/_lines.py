"""The line of the program that causes most of something."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


def line_of_most(lines: Iterable[str], amounts: Iterable[float]) -> str:
    """Returns the line with the largest sum; empty where lines are not known."""
    total: dict[str, float] = defaultdict(float)
    for line, amount in zip(lines, amounts, strict=True):
        total[line] += amount
    return max(total, key=total.__getitem__, default="")
