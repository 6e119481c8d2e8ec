"""What Keras asks while a replica's step is traced: which replica this is, and what it weighs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from distlab.context import scopes
from distlab.context.replica_context import ReplicaContext, get_replica_context


class _Thread(threading.local):
    def __init__(self) -> None:
        self.share: Any = None
        self.empty = False
        self.added_up = False
        self.reduced = False
        self.warnings: list[str] | None = None


_thread = _Thread()


def replica() -> ReplicaContext | None:
    """Returns the context of one of several replicas; None outside of a replica function."""
    if scopes.in_cross_replica_context() or not scopes.has_strategy():
        return None
    context = get_replica_context()
    return context if context.num_replicas_in_sync > 1 else None


def share(context: ReplicaContext) -> Any:
    """Returns the weight of this replica's mean in the mean of all: 1 / replicas, as in TensorFlow.

    Where a model weighs by examples, it is the replica's part of the global batch.
    """
    return 1.0 / context.num_replicas_in_sync if _thread.share is None else _thread.share


def weighs_examples() -> bool:
    """Returns whether each example of the global batch counts alike in this step."""
    return _thread.share is not None


def is_empty() -> bool:
    """Returns whether this replica has no examples in this step."""
    return _thread.empty


def added_up() -> bool:
    """Returns whether the gradients that the optimizer is applying are those of all replicas."""
    return _thread.added_up


def in_step() -> bool:
    """Returns whether this is a step of Keras', and not the user's own replica function."""
    return _thread.warnings is not None


def warn(message: str) -> None:
    """Gives a warning to the step, whose caller says it: eager replicas run in other threads."""
    assert _thread.warnings is not None
    _thread.warnings.append(message)


def note_reduced() -> None:
    """Notes that Keras has reduced a loss to one number, which is this replica's part."""
    _thread.reduced = True


def reduced_in(compute: Callable[[], Any]) -> tuple[Any, bool]:
    """Returns what a function returns, and whether Keras reduced a loss in it."""
    outer, _thread.reduced = _thread.reduced, False
    try:
        return compute(), _thread.reduced
    finally:
        _thread.reduced = outer


@contextlib.contextmanager
def step(share: Any, *, empty: bool) -> Iterator[list[str]]:
    """Describes the step that this thread traces or runs; gives the list of its warnings."""
    before = _thread.share, _thread.empty, _thread.warnings
    warnings: list[str] = []
    _thread.share, _thread.empty, _thread.warnings = share, empty, warnings
    try:
        yield warnings
    finally:
        _thread.share, _thread.empty, _thread.warnings = before


@contextlib.contextmanager
def gradients_added_up() -> Iterator[None]:
    """Marks gradients as those of all replicas, so that they are not added up again."""
    before, _thread.added_up = _thread.added_up, True
    try:
        yield
    finally:
        _thread.added_up = before
