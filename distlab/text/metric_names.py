"""Names of logged numbers: those that people look for first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAIN: Final = frozenset({"loss", "Loss", "accuracy", "Accuracy"})
"""Names that each page keeps, however many others there are."""


def is_loss(name: str) -> bool:
    """Returns whether a metric is a loss, by its name."""
    return "loss" in name.lower()


def is_other(name: str) -> bool:
    """Returns whether a metric is no loss."""
    return not is_loss(name)


def is_accuracy(name: str) -> bool:
    """Returns whether a metric is an accuracy, by its name."""
    return "acc" in name.lower()


def by_interest(names: Iterable[str]) -> list[str]:
    """Returns names with those first that people look for, else in their own order."""
    return sorted(names, key=_rank)


def _rank(name: str) -> int:
    return 0 if name in MAIN else 1 if is_loss(name) or is_accuracy(name) else 2
