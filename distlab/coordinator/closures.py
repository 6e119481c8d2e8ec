"""Calling a scheduled function as a worker does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distlab.coordinator.per_worker import part_of
from distlab.errors import OutOfRangeError


def call(fn: Callable[..., Any], args: Any, kwargs: Any, worker: int) -> Any:
    """Returns the result of a function with a worker's part of its arguments."""
    args, kwargs = part_of(worker, (args, kwargs))
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise OutOfRangeError(
            f"{name_of(fn)} asked for more batches than worker {worker} has. Schedule as many "
            "steps as there are batches, or repeat() the dataset."
        ) from error


def name_of(fn: Callable[..., Any]) -> str:
    """Returns a function's name."""
    return getattr(fn, "__qualname__", repr(fn))
