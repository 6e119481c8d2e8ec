"""What a reader chose on a page: the page writes it, and nothing in it is trusted."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any, Final, get_args

from distlab.events import AnyEvent

_MOST_TEXT: Final = 200
KINDS: Final = tuple(sorted(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)))
"""The kinds of events that can be asked for."""


@dataclass(frozen=True)
class View:
    """Which part of a run a page shows, and what was pressed on it.

    Attributes:
      page: which page is open.
      batch: number of the batch to show, None for the newest.
      replica: the first replica of a batch to draw, where there are too many for all.
      device: the first device to show by itself, where there are too many for all;
        None for all, in groups.
      at: the moment that is shown, in seconds since the run began; None for now.
      since: only what came after this many seconds; None for all.
      speed: how fast the moment moves on, in seconds a second; None when it stays.
      reduction: row of the table of reductions whose traffic is drawn.
      kind: the kind of events to list, empty for all.
      text: what the listed events have to say.
      before: only events with lower numbers are listed; None for the newest.
      event: number of the event that is shown whole, None for none.
      captures: how many captures were asked for.
      orders: how many orders were given to loops.
      loop, order: the loop that the newest order is for, and what it shall do.
    """

    page: str = "overview"
    batch: int | None = None
    replica: int = 0
    device: int | None = None
    at: float | None = None
    since: float | None = None
    speed: float | None = None
    reduction: int = 0
    kind: str = ""
    text: str = ""
    before: int | None = None
    event: int | None = None
    captures: int = 0
    orders: int = 0
    loop: int = 0
    order: str = ""

    @classmethod
    def read(cls, text: Any) -> View:
        """Returns what a page wrote; what makes no sense is as if it were not there."""
        try:
            given = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            return cls()
        if not isinstance(given, dict):
            return cls()
        known = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        return cls(**{name: value for name, value in known.items() if _fits(name, value)})


_WORDS: Final = {"page", "kind", "text", "order"}
_COUNTS: Final = {"replica", "reduction", "captures", "orders", "loop"}
_NUMBERS: Final = {"batch", "device", "before", "event"}


def _fits(name: str, value: Any) -> bool:
    if name in _WORDS:
        return isinstance(value, str) and len(value) <= _MOST_TEXT
    if name in _COUNTS | _NUMBERS:
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
        return whole or (value is None and name in _NUMBERS)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and math.isfinite(value) and 0 <= value < 1e12)
