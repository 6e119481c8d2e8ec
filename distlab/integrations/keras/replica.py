"""The replica whose step is traced, and the weights of replicas and examples."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

from distlab.context import scopes
from distlab.context.replica_context import ReplicaContext, get_replica_context
from distlab.errors import ArgumentValueError
from distlab.text.shown import shown

_by_examples = False


class _Thread(threading.local):
    def __init__(self) -> None:
        self.share: Any = None
        self.empty = False
        self.added_up = False
        self.reduced = False


_thread = _Thread()


def replica() -> ReplicaContext | None:
    """Returns the context of one of several replicas; None outside of a replica function."""
    if scopes.in_cross_replica_context() or not scopes.has_strategy():
        return None
    context = get_replica_context()
    return context if context.num_replicas_in_sync > 1 else None


def share(context: ReplicaContext) -> Any:
    """Returns this replica's weight: TensorFlow's 1 / replicas, or its share of the examples."""
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
def step(share: Any, *, empty: bool) -> Iterator[None]:
    """Describes the step that this thread traces or runs."""
    before = _thread.share, _thread.empty
    _thread.share, _thread.empty = share, empty
    try:
        yield
    finally:
        _thread.share, _thread.empty = before


@contextlib.contextmanager
def gradients_added_up() -> Iterator[None]:
    """Marks gradients as those of all replicas, so that they are not added up again."""
    before, _thread.added_up = _thread.added_up, True
    try:
        yield
    finally:
        _thread.added_up = before


def weigh_by(unit: Literal["replicas", "examples"]) -> None:
    """Chooses between replicas and examples that count alike, for Keras models made from here on.

    With "replicas", the default, results are those of Keras on TensorFlow: each replica computes
    the mean over its part of the batch, and these means count alike. So an example of a partial
    batch, of which the last replicas have fewer, may count several times as much as another;
    batch normalization sees a replica's part, and gradients are clipped before they are added up.

    With "examples", results are those of one device: each example of the global batch counts
    alike, batch normalization sees the global batch, and gradients are clipped once added up. A
    loss function that returns one number for all examples is taken for a mean.

    Args:
      unit: "replicas" or "examples".

    Raises:
      ArgumentValueError: It is neither.

    Example:
      >>> import distlab as dl
      >>> dl.keras.weigh_by("examples")
      >>> dl.keras.weigh_by("replicas")
    """
    given: Any = unit
    if given not in ("replicas", "examples"):
        raise ArgumentValueError(
            f'weigh_by accepts "replicas" or "examples", got {shown(given)}. "replicas" computes '
            'what Keras on TensorFlow does, "examples" what one device does.'
        )
    global _by_examples
    _by_examples = given == "examples"


def models_weigh_examples() -> bool:
    """Returns whether models that are made now weigh by examples."""
    return _by_examples
