"""Scheduled functions, and calling one as a worker does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from distlab.coordinator.per_worker import part_of
from distlab.coordinator.remote_value import RemoteValue
from distlab.errors import OutOfRangeError


class Closure(NamedTuple):
    """A scheduled function with its arguments and its result.

    `sent` is what travels to a worker of another process, `put_at` when it was scheduled, by
    `time.monotonic`.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: RemoteValue
    sent: Any = None
    put_at: float = 0.0

    @property
    def name(self) -> str:
        """The function's name."""
        return name_of(self.fn)


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
