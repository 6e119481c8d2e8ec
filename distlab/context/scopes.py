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
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from distlab.errors import ContextError

if TYPE_CHECKING:  # `import distlab` loads this module, and must not load JAX
    from distlab.context.collectives import MergingCollectives
    from distlab.context.host import Host


_H = TypeVar("_H", bound="Host")


class Replica(Protocol):
    """A replica context, as the scopes know it."""

    @property
    def strategy(self) -> Host:
        """The strategy that runs the replica."""


class _Mode(NamedTuple):
    strategy: Host
    replica: Replica | None
    merging: MergingCollectives | None = None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.modes: list[_Mode] = []


_thread = _Thread()
_base: Host | None = None
_make_default: Callable[[], Replica] | None = None
_default: Replica | None = None
_making = threading.RLock()


def set_default(make: Callable[[], Replica]) -> None:
    """Registers the function that makes the default strategy's replica context.

    It is called once, when code first runs outside of any scope.
    """
    global _make_default
    _make_default = make


def current_strategy() -> Host:
    """Returns the current strategy; the default one outside of any scope."""
    return _mode().strategy


def has_strategy() -> bool:
    """Returns whether a strategy other than the default one is current."""
    return current_strategy() is not _default_strategy()


def current_replica() -> Replica | None:
    """Returns the replica context, None in cross-replica context."""
    return _mode().replica


def in_cross_replica_context() -> bool:
    """Returns whether this thread is in cross-replica context."""
    return _mode().replica is None


def set_base(strategy: Host | None) -> None:
    """Makes a strategy current wherever no scope is entered, in all threads.

    Args:
      strategy: The strategy; None restores the default one.

    Raises:
      ContextError: This thread is in a strategy's scope or replica function.
    """
    global _base
    if _thread.modes:
        raise ContextError(
            "experimental_set_strategy must not be called inside a scope, but "
            f"{current_strategy()!r} is in scope. Leave its `with` block first."
        )
    _base = strategy


def merging() -> MergingCollectives | None:
    """Returns the collectives of the trace whose `merge_call` this is, None elsewhere."""
    return _mode().merging


def require_cross_replica(verb: str, strategy: Host) -> None:
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
def cross_replica(strategy: Host, merging: MergingCollectives | None = None) -> Iterator[None]:
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
def replica(context: Replica) -> Iterator[None]:
    """Puts this thread in a replica context."""
    _thread.modes.append(_Mode(context.strategy, context))
    try:
        yield
    finally:
        _thread.modes.pop()


@contextlib.contextmanager
def scope(strategy: _H) -> Iterator[_H]:
    """Makes a strategy current for a block of code, in cross-replica context.

    Raises:
      ContextError: Another strategy is in scope, or this is a replica function.
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
    replica = _default_replica()
    return _Mode(replica.strategy, replica)


def _default_strategy() -> Host:
    return _default_replica().strategy


def _default_replica() -> Replica:
    global _default
    if _default is None:
        with _making:  # the first two threads to ask may ask at once
            if _default is None:
                assert _make_default is not None  # distlab/__init__.py sets it
                _default = _make_default()
    return _default
