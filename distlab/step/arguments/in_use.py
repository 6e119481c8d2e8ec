"""The objects that steps are changing: a step reads them, is dispatched, and writes them back.

Of two threads whose steps change one object, one must wait for the other, or what that wrote would
be lost. A step takes all its objects at once, or waits while it has none, so that no two steps
wait for each other. It takes them before any lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, final

_LOOK_SECONDS: Final = 1.0
"""Seconds after which a waiting step looks again: an interrupt may end one that wakes nobody."""

_lock = threading.RLock()
"""Entered by itself: an interrupt while Python enters a `Condition` would leave it locked."""

_ended = threading.Condition(_lock)

present: dict[Use, bool] = {}
"""The uses that have begun. Who takes one out, which nothing can interrupt, calls `wake` then."""


@final
class Use:
    """The use that one call of `run` makes of objects."""

    __slots__ = ("_objects", "_thread")

    def __init__(self) -> None:
        self._objects: frozenset[int] = frozenset()
        self._thread = 0

    def begin(self, objects: Iterable[int]) -> None:
        """Takes objects, once no other thread uses any of them.

        A thread that has some already waits for nothing: others may wait for what it has.
        """
        self._objects = frozenset(objects)
        self._thread = threading.get_ident()
        with _lock:
            if all(other._thread != self._thread for other in list(present)):
                while any(map(self._meets, list(present))):
                    _ended.wait(_LOOK_SECONDS)
            present[self] = True

    def _meets(self, other: Use) -> bool:
        return not self._objects.isdisjoint(other._objects)


def wake() -> None:
    """Wakes the threads that wait for objects."""
    with _lock:
        _ended.notify_all()
