"""What a program has read from an iterator, for those who passed it on."""

from __future__ import annotations

from threading import get_ident
from typing import Any, final


@final
class Reads:
    """What was read from an iterator so far, wherever it stands.

    Attributes:
      taken: The number of elements.
      ends: The number of times that its end was met.
      threads: The threads that read.
    """

    __slots__ = ("ends", "taken", "threads")

    def __init__(self) -> None:
        self.taken = self.ends = 0
        self.threads: set[int] = set()

    def note(self, *, ended: bool) -> None:
        """Counts an element, or the end."""
        self.threads.add(get_ident())
        if ended:
            self.ends += 1
        else:
            self.taken += 1


def reads_of(iterator: Any) -> Reads | None:
    """Returns what was read from an iterator of distlab; None for another one."""
    reads: Any = getattr(iterator, "_reads", None)
    return reads if isinstance(reads, Reads) else None
