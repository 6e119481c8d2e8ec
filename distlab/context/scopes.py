"""Which strategy is current in this thread, and whether in replica context.

A thread is always in one of two contexts: *cross-replica context*, where one
program speaks for all replicas, or *replica context*, where the code is what
one replica runs. Outside of any scope it is the default strategy's replica
context, as in TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from distlab.errors import ContextError

if TYPE_CHECKING:
    from distlab.collectives.traced import TracedCollectives
    from distlab.context.replica_context import ReplicaContext
    from distlab.strategies.abstract import Strategy
    from distlab.strategies.default import DefaultStrategy


class _Mode(NamedTuple):
    strategy: Strategy
    replica: ReplicaContext | None
    merging: TracedCollectives | None = None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.modes: list[_Mode] = []


_thread = _Thread()
_base: Strategy | None = None
_make_default: Callable[[], DefaultStrategy] | None = None
_default: DefaultStrategy | None = None
_making = threading.RLock()


def set_default(make: Callable[[], DefaultStrategy]) -> None:
    """Says how to make the strategy that holds where no other does, when it is needed."""
    global _make_default
    _make_default = make


def get_strategy() -> Strategy:
    """Returns the current strategy; the default one outside of any scope."""
    return _mode().strategy


def has_strategy() -> bool:
    """Says whether a strategy other than the default one is current."""
    return get_strategy() is not _default_strategy()


def get_replica_context() -> ReplicaContext:
    """Returns the replica context, or None in cross-replica context.

    Outside of any scope it is the default strategy's: replica 0 of 1. The None
    is left out of the type: in a replica function, where one asks for the
    context to use it, there always is one.
    """
    return _mode().replica  # type: ignore[return-value]


def in_cross_replica_context() -> bool:
    """Says whether this thread is in cross-replica context."""
    return _mode().replica is None


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """Makes a strategy current without a `with` block, in all threads.

    Args:
      strategy: the strategy, or None to go back to the default one.

    Raises:
      ContextError: called inside a strategy's scope or replica function, or
        with something that is no strategy.
    """
    global _base
    if strategy is not None and not isinstance(
        getattr(strategy, "num_replicas_in_sync", None), int
    ):
        raise ContextError(
            "experimental_set_strategy needs a strategy that was made, such as "
            f"distlab.MirroredStrategy(), or None, got {strategy!r:.80}."
        )
    if _thread.modes:
        raise ContextError(
            "experimental_set_strategy must not be called inside a scope, but "
            f"{get_strategy()!r} is in scope. Leave its `with` block first."
        )
    _base = strategy


def merging() -> TracedCollectives | None:
    """Returns the collectives of the trace whose `merge_call` this is, None elsewhere."""
    return _mode().merging


def require_cross_replica(verb: str, strategy: Strategy) -> None:
    """Checks that `strategy` may be used from here for all of its replicas.

    Raises:
      ContextError: in a replica function, or in the scope of another strategy.
    """
    mode = _mode()
    default = _default_strategy()
    if mode.strategy is not strategy and mode.strategy is not default:
        raise ContextError(
            f"{verb} was called on {strategy!r} inside the scope of {mode.strategy!r}. "
            "One strategy can be current at a time: leave that scope first."
        )
    if mode.strategy is strategy and mode.replica is not None and strategy is not default:
        raise ContextError(
            f"{verb} must be called in cross-replica context, but this is a function that "
            f"{strategy!r} runs on each replica. Call it outside, on what `run` returns."
        )


@contextlib.contextmanager
def cross_replica(strategy: Strategy, merging: TracedCollectives | None = None) -> Iterator[None]:
    """Puts this thread in the cross-replica context of a strategy.

    Args:
      strategy: the strategy.
      merging: while a `merge_call` is traced, how its replicas combine values.
    """
    _thread.modes.append(_Mode(strategy, None, merging))
    try:
        yield
    finally:
        _thread.modes.pop()


@contextlib.contextmanager
def replica(context: ReplicaContext) -> Iterator[None]:
    """Puts this thread in a replica context."""
    _thread.modes.append(_Mode(context.strategy, context))
    try:
        yield
    finally:
        _thread.modes.pop()


@contextlib.contextmanager
def scope(strategy: Strategy) -> Iterator[Strategy]:
    """Makes a strategy current for a block of code, in cross-replica context.

    Raises:
      ContextError: another strategy is in scope, or this is a replica function.
    """
    require_cross_replica("scope()", strategy)
    if strategy is _default_strategy():
        if has_strategy():
            raise ContextError("The default strategy's scope can't be entered inside another's.")
        yield strategy
        return
    with cross_replica(strategy):
        yield strategy


def _mode() -> _Mode:
    modes = _thread.modes
    if modes:
        return modes[-1]
    if _base is not None:
        return _Mode(_base, None)
    return _default_mode()


@functools.cache
def _default_mode() -> _Mode:
    default = _default_strategy()
    return _Mode(default, default.default_replica_context())


def _default_strategy() -> DefaultStrategy:
    global _default
    if _default is None:
        with _making:  # the first two threads to ask may ask at once
            if _default is None:
                assert _make_default is not None  # distlab/__init__.py sets it
                _default = _make_default()
    return _default
