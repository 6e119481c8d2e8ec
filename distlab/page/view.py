"""The reader's choices on a page. The page writes them, and none of it is trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Final, get_args

from distlab.events import AnyEvent

_MOST_TEXT: Final = 200
KINDS: Final = tuple(sorted(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)))
"""The kinds of events that can be chosen."""


@dataclass(frozen=True)
class View:
    """The part of a run that a page shows, and the buttons pressed on it.

    Attributes:
      page: The open page.
      batch: Number of the batch to show, None for the newest.
      dataset: Number of the dataset whose batches to show, None for all.
      replica: The first replica of the batch to draw, where there are too many for all.
      device: The first device of the part to show, where there are too many for all;
        None for all, in groups.
      at: The moment to show, in seconds since the run began; None for the newest.
      since: Leaves out events before this second; None for none.
      speed: Seconds by which the moment moves on in a second; None for a fixed moment.
      reduction: Row of the reduction whose traffic is drawn.
      kind: The kind of events to list, empty for all.
      text: Text that the listed events contain.
      before: Lists only events with lower numbers; None for the newest.
      event: Number of the event to show in full, None for none.
      captures: How many captures were requested.
      orders: How many loop buttons were pressed.
      loop: Number of the loop of the last press.
      order: Its verb.
    """

    page: str = "overview"
    batch: int | None = None
    dataset: int | None = None
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
    def read(cls, text: object) -> View:
        """Returns the choices that a page wrote; invalid ones keep their defaults."""
        try:
            given = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(given, dict):
            return cls()
        known = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        return cls(**{name: value for name, value in known.items() if _fits(name, value)})


_WORDS: Final = {"page", "kind", "text", "order"}
_COUNTS: Final = {"replica", "reduction", "captures", "orders", "loop"}
_NUMBERS: Final = {"batch", "dataset", "device", "before", "event"}


def _fits(name: str, value: object) -> bool:
    if name in _WORDS:
        return isinstance(value, str) and len(value) <= _MOST_TEXT
    if name in _COUNTS | _NUMBERS:
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
        return whole or (value is None and name in _NUMBERS)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value is None
    return 0 <= value < 1e12  # false of NaN; a whole number may be too large for a float
