"""A count of a program's reads from an iterator, for those who passed it on."""

from __future__ import annotations

from threading import get_ident
from typing import Any, final


@final
class Reads:
    """The reads from an iterator so far, wherever it stands.

    Attributes:
      taken: The number of elements.
      ends: The number of times that its end was met.
      threads: The threads that read.
    """

    __slots__ = ("ends", "taken", "threads")

    def __init__(self) -> None:
        self.taken = self.ends = 0
        self.threads: set[int] = set()

    def begin(self) -> None:
        """Notes the thread that is about to read.

        It then counts what it took by itself: an interrupt comes where a function is called, and
        an element that was taken would be lost with it.
        """
        self.threads.add(get_ident())


def reads_of(iterator: Any) -> Reads | None:
    """Returns what was read from an iterator of distlab; None for another one."""
    reads: Any = getattr(iterator, "_reads", None)
    return reads if isinstance(reads, Reads) else None
