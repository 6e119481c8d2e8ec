"""Checks of the arguments of trainers, controllers and estimators."""

from __future__ import annotations

import operator
from typing import Any

from distlab.data import INFINITE_CARDINALITY, Dataset
from distlab.errors import ArgumentTypeError, ArgumentValueError, InvalidArgumentError
from distlab.input.dataset import DistributedDataset
from distlab.strategies.abstract import Strategy
from distlab.text.counts import is_positive_count
from distlab.text.shown import shown


def require_count(name: str, value: Any, unit: str = "steps", *, optional: bool = False) -> None:
    """Checks that an argument is a number of things, of at least one."""
    if (value is None and optional) or is_positive_count(value):
        return
    or_none = " or None" if optional else ""
    raise ArgumentValueError(
        f"{name} must be a positive whole number of {unit}{or_none}, got {shown(value)}. Write for "
        f"example {name}=100."
    )


def checked_total(name: str, value: Any) -> int:
    """Returns a number of steps since the beginning, of any kind of whole number."""
    try:
        total = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        total = -1
    if total < 0:
        raise ArgumentValueError(
            f"{name} must be a whole number of steps, at least 0, got {shown(value)}. Write for "
            f"example {name}=100."
        )
    return total


def require_end(dataset: Any) -> None:
    """Checks that data which is to be evaluated to its end has one, as far as it is known."""
    if isinstance(dataset, DistributedDataset):
        endless = dataset.batches.endless
    else:
        endless = isinstance(dataset, Dataset) and dataset.cardinality() == INFINITE_CARDINALITY
    if endless:
        raise InvalidArgumentError(
            "evaluate without a number of steps needs a dataset with an end. Use take(n) before, "
            "or pass a number of steps."
        )


def require_function(name: str, value: Any) -> None:
    """Checks that an argument can be called."""
    if not callable(value):
        raise ArgumentTypeError(f"{name} must be a function, got {shown(value)}. Pass one by name.")


def require_kind(name: str, value: Any, kind: type, *, optional: bool = False) -> None:
    """Checks that an argument is an object of a class."""
    if isinstance(value, kind) or (value is None and optional):
        return
    or_none = " or None" if optional else ""
    known = "strategy, such as dl.MirroredStrategy()" if kind is Strategy else kind.__name__
    raise ArgumentTypeError(
        f"{name} must be a {known}{or_none}, got {shown(value)}. Make one first, and pass it as "
        f"{name}=."
    )
