"""Searching the events of a run from the newest to the oldest, in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from distlab.errors import RecordError
from distlab.events import Event, Source, Unknown, kind_of
from distlab.text.units import plain

MOST_ROWS: Final = 100
_PAGE: Final = 2_000
_MOST_TEXT: Final = 240
_MOST_WHOLE: Final = 20_000
_MOST_VALUES: Final = 64
_MOST_LISTED: Final = 8
NAMES: Final = ("number", "time", "kind", "text")


@dataclass(frozen=True)
class Query:
    """The events to find."""

    kind: str
    text: str
    low_ns: int
    high_ns: int
    before: int  # a sequence number


class EventSearch:
    """Finds events from the newest to the oldest, until the table is full."""

    def __init__(self, source: Source, zero_ns: int, query: Query) -> None:
        self.query = query
        self.searched = 0
        self.done = False
        self.more = False
        self._source = source
        self._zero_ns = zero_ns
        self._closed = False
        self._rows: list[tuple[str, str, str, str]] = []
        threading.Thread(target=self._work, name="distlab-search", daemon=True).start()

    def rows(self) -> dict[str, list[str]]:
        """Returns the events found so far, newest first, as texts by column."""
        found = list(self._rows)
        return {name: [row[place] for row in found] for place, name in enumerate(NAMES)}

    def close(self) -> None:
        """Ends the search early."""
        self._closed = True

    def _work(self) -> None:
        with suppress(RecordError):  # the server was stopped, and closed the run
            self._search()

    def _search(self) -> None:
        wanted = self.query.text.casefold()
        for number, event in backwards(self._source, self.query.before):
            if self._closed:
                return
            self.searched += 1
            if not self.query.low_ns <= event.time_ns < self.query.high_ns:
                continue
            kind = kind_of(event)
            if self.query.kind not in {"", kind}:
                continue
            text = summary_of(event)
            if wanted and wanted not in f"{kind} {text}".casefold():
                continue
            if len(self._rows) == MOST_ROWS:
                self.more = True
                break
            seconds = (event.time_ns - self._zero_ns) / 1e9
            self._rows.append((str(number), f"{seconds:.6f}", kind, plain(text, _MOST_TEXT)))
        self.done = True


def backwards(source: Source, before: int) -> Iterator[tuple[int, Event | Unknown]]:
    """Yields events from the newest to the oldest, up to those that a ring has dropped."""
    end = before
    while end > 0:
        start = max(0, end - _PAGE)
        chunk = source.since(start, end - start)
        # Instead of dropped events a ring returns later ones, which were yielded already.
        events = chunk.events[: len(chunk.events) - max(0, chunk.cursor - end)]
        last = min(chunk.cursor, end)
        yield from ((last - 1 - back, event) for back, event in enumerate(reversed(events)))
        if chunk.lost:
            return
        end = start


def summary_of(event: Event | Unknown) -> str:
    """Returns an event's fields as one line."""
    parts = []
    for name, value in _fields(event).items():
        if name == "time_ns":
            continue
        parts.append(f"{name}={_short(value)}")
    return "  ".join(parts)


def whole_of(event: Event | Unknown) -> str:
    """Returns an event as indented JSON, with bytes counted and long lists shortened."""
    text = msgspec.json.format(msgspec.json.encode(_cut(_fields(event))), indent=2).decode()
    return text if len(text) <= _MOST_WHOLE else f"{text[:_MOST_WHOLE]}\n\u2026"


def _fields(event: Event | Unknown) -> dict[str, object]:
    if isinstance(event, Unknown):
        return {"time_ns": event.time_ns, **event.fields}
    return {name: getattr(event, name) for name in event.__struct_fields__}


def _short(value: object) -> str:
    match value:
        case bytes() | bytearray() | memoryview():
            return f"<{len(value):,} bytes>"
        case float():
            return f"{value:.6g}"
        case list():
            shown = ", ".join(map(_short, value[:_MOST_LISTED]))
            more = f", \u2026 {len(value)} in all" if len(value) > _MOST_LISTED else ""
            text = f"[{shown}{more}]"
        case dict():
            text = "{" + ", ".join(f"{key}: {_short(one)}" for key, one in value.items()) + "}"
        case msgspec.Struct():
            text = _short(msgspec.structs.asdict(value))
        case _:
            text = str(value)[:_MOST_TEXT]
    return text


def _cut(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value):,} bytes>"
    if isinstance(value, dict):
        return {str(key): _cut(one) for key, one in value.items()}
    if isinstance(value, msgspec.Struct):
        return _cut(msgspec.structs.asdict(value))
    if isinstance(value, list | tuple):
        kept = [_cut(one) for one in value[:_MOST_VALUES]]
        left = len(value) - _MOST_VALUES
        return [*kept, f"\u2026 and {left:,} more"] if left > 0 else kept
    return value
