"""The current strategy of a thread, and whether the thread is in replica context.

A thread is always in one of two contexts: *cross-replica context*, where the code
acts on all replicas, or *replica context*, where the code runs on one replica.
Outside of any scope it is in the default strategy's replica context, as in TensorFlow.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from distlab.errors import ContextError

if TYPE_CHECKING:  # `import distlab` loads this module, and must not load JAX
    from distlab.context.collectives import MergingCollectives
    from distlab.context.host import Host


_H = TypeVar("_H", bound="Host")


class Replica(Protocol):
    """A replica context, as far as scopes need it."""

    @property
    def strategy(self) -> Host:
        """The strategy that runs the replica."""


class _Mode(NamedTuple):
    strategy: Host
    replica: Replica | None
    merging: MergingCollectives | None = None
    updating: bool = False


class _Entry:
    """A mode until it is left: copies of a context, which asyncio keeps, must hold no strategy."""

    __slots__ = ("mode",)

    def __init__(self, mode: _Mode) -> None:
        self.mode: _Mode | None = mode


class _Thread(threading.local):
    base: Host | None = None


_thread = _Thread()
# Of a thread, and in it of an asyncio task: a scope around an `await` is not another task's.
_entries: ContextVar[tuple[_Entry, ...]] = ContextVar("distlab scopes", default=())
_make_default: Callable[[], Replica] | None = None
_default: _Mode | None = None
_making = threading.RLock()


def set_default(make: Callable[[], Replica]) -> None:
    """Registers what makes the default strategy's context, when one is first requested."""
    global _make_default
    _make_default = make


def current_strategy() -> Host:
    """Returns the current strategy; outside of any scope, the default strategy."""
    return _mode().strategy


def has_strategy() -> bool:
    """Returns whether a strategy other than the default strategy is current.

    Example:
      >>> import distlab as dl
      >>> dl.has_strategy()
      False
      >>> with dl.MirroredStrategy().scope():
      ...     dl.has_strategy()
      True
    """
    return current_strategy() is not _default_mode().strategy


def current_replica() -> Replica | None:
    """Returns the replica context; None in cross-replica context."""
    return _mode().replica


def in_cross_replica_context() -> bool:
    """Returns whether this thread is in cross-replica context.

    Example:
      >>> import distlab as dl
      >>> dl.in_cross_replica_context()
      False
      >>> with dl.MirroredStrategy().scope():
      ...     dl.in_cross_replica_context()
      True
    """
    return _mode().replica is None


def set_base(strategy: Host | None) -> None:
    """Makes a strategy current outside of all scopes, in this thread."""
    if _top() is not None:
        raise ContextError(
            "experimental_set_strategy must not be called inside a scope, but "
            f"{current_strategy()!r} is in scope. Leave its `with` block first."
        )
    _thread.base = strategy


def merging() -> MergingCollectives | None:
    """Returns the collectives of the traced `merge_call` that runs here; None elsewhere."""
    return _mode().merging


def updating() -> bool:
    """Returns whether this thread runs a function of `extended.update`, for one copy."""
    return _mode().updating


def entered(verb: str, strategy: Host) -> MergingCollectives | None:
    """Checks that a step of `strategy` may be run here; returns the `merge_call` around it."""
    if not _entries.get() and _thread.base is None and _default is not None:
        return None  # outside of any scope
    mode = _mode()
    if mode.strategy is not strategy or mode.replica is not None:
        require_cross_replica(verb, strategy)
    return mode.merging


def require_cross_replica(verb: str, strategy: Host) -> None:
    """Checks that a verb may be called here on all replicas of `strategy`."""
    mode = _mode()
    default = _default_mode().strategy
    if mode.strategy is not strategy and mode.strategy is not default:
        alike = repr(strategy) == repr(mode.strategy)
        other = f"another {mode.strategy!r}, made apart" if alike else repr(mode.strategy)
        raise ContextError(
            f"{verb} was called on {strategy!r} inside the scope of {other}. "
            "One strategy can be current at a time: leave that scope first."
        )
    if mode.strategy is strategy and mode.replica is not None and strategy is not default:
        raise ContextError(
            f"{verb} must be called in cross-replica context, but this is a function that "
            f"{strategy!r} runs on each replica. Call it outside, on the result of `run`."
        )


def cross_replica(
    strategy: Host, merging: MergingCollectives | None = None, *, updating: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Puts this thread in the cross-replica context of a strategy."""
    return _entered(_Mode(strategy, None, merging, updating))


def replica(context: Replica) -> contextlib.AbstractContextManager[None]:
    """Puts this thread in a replica context."""
    return _entered(_Mode(context.strategy, context))


@contextlib.contextmanager
def _entered(mode: _Mode) -> Iterator[None]:
    before, entry = _entries.get(), _Entry(mode)
    _entries.set((*before, entry))
    try:
        yield
    finally:
        entry.mode = None
        _entries.set(before)


def outside() -> contextlib.AbstractContextManager[None]:
    """Puts this thread in the context outside of any scope: the default strategy's."""
    context = _default_mode().replica
    assert context is not None
    return replica(context)


class Scope(contextlib.ContextDecorator, Generic[_H]):
    """A `with` block in which a strategy is current. One object may be entered many times."""

    def __init__(self, strategy: _H) -> None:
        self._strategy = strategy

    def __enter__(self) -> _H:
        """Makes the strategy current, in cross-replica context."""
        strategy = self._strategy
        require_cross_replica("scope()", strategy)
        if strategy is not _default_mode().strategy:
            present = _mode()  # within merge_call or update, its own scope changes nothing
            inside = present.strategy is strategy
            entry = _Entry(present if inside else _Mode(strategy, None))
            _entries.set((*_entries.get(), entry))
        elif has_strategy():
            raise ContextError(
                "The default strategy's scope can't be entered inside another's, but "
                f"{current_strategy()!r} is in scope. Leave its `with` block first."
            )
        return strategy

    def __exit__(self, *_: object) -> None:
        """Makes the strategy current that was so before."""
        strategy, entries = self._strategy, _entries.get()
        if strategy is _default_mode().strategy:
            return
        mode = entries[-1].mode if entries else None
        if mode is None or mode.strategy is not strategy:
            raise ContextError(
                f"The scope of {strategy!r} was left, but this thread did not enter it last. Leave "
                "scopes in the reverse order, in the thread that entered them."
            )
        entries[-1].mode = None
        _entries.set(entries[:-1])


def _top() -> _Mode | None:
    """Returns the mode that was entered last and not left yet."""
    for entry in reversed(_entries.get()):
        if entry.mode is not None:
            return entry.mode
    return None


def _mode() -> _Mode:
    mode = _top()
    if mode is not None:
        return mode
    if _thread.base is not None:
        return _Mode(_thread.base, None)
    return _default_mode()


def _default_mode() -> _Mode:
    global _default
    if _default is None:
        with _making:  # two threads may be the first at once
            if _default is None:
                assert _make_default is not None  # distlab/__init__.py sets it
                replica = _make_default()
                _default = _Mode(replica.strategy, replica)
    return _default
