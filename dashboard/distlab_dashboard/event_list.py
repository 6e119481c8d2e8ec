"""The page Events: the events that fit the reader's query, and one of them in full."""

from __future__ import annotations

import time
from typing import Final

from distlab.events import Event, Unknown, kind_of
from distlab.page.event_search import MOST_ROWS, NAMES, EventSearch, Query, whole_of
from distlab.page.facts import Facts
from distlab.page.feed import Feed
from distlab.page.view import KINDS, View
from distlab.text.units import count_text

_FAR_NS: Final = 1 << 62
_AGAIN_SECONDS: Final = 1.0


class EventList:
    """Keeps the table of events up to date: the newest ones that fit the query."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._search: EventSearch | None = None
        self._begun = 0.0
        self._rows: dict[str, list[str]] = {name: [] for name in NAMES}
        self._whole: tuple[int | None, str] = (None, "")

    def update(self, view: View, at: float | None) -> dict[str, list[str]]:
        """Returns the rows to show, as texts by column."""
        query = self._query(view, at)
        search = self._search
        if search is None or (search.query != query and self._due(search, query)):
            self.close()
            self._search = search = EventSearch(self._feed.source, self._feed.zero_ns or 0, query)
            self._begun = time.monotonic()
        # While a search runs again, the rows of the last one stay: the table would flicker.
        if search.done or len(search.rows()["number"]) > 0:
            self._rows = search.rows()
        return self._rows

    def facts(self, view: View) -> Facts:
        """Returns the texts beside the table."""
        search = self._search
        found = len(self._rows["number"])
        return {
            "event_note": "searching\u2026" if search is None else _note(found, search),
            "event_more": search is not None and search.more,
            "event_last": int(self._rows["number"][-1]) if found else None,
            "event_kinds": KINDS,
            "no_events": not found and search is not None and search.done,
            "event_whole": self._event(view.event),
            "has_event": view.event is not None,
        }

    def close(self) -> None:
        """Ends the search."""
        if self._search is not None:
            self._search.close()

    def _query(self, view: View, at: float | None) -> Query:
        zero_ns = self._feed.zero_ns or 0
        low_ns = -_FAR_NS if view.since is None else zero_ns + round(view.since * 1e9)
        high_ns = _FAR_NS if at is None else zero_ns + round(at * 1e9) + 1
        cursor = self._feed.folds.cursor
        before = cursor if view.before is None else min(view.before, cursor)
        return Query(view.kind, view.text.strip(), low_ns, high_ns, before)

    def _due(self, search: EventSearch, query: Query) -> bool:
        """Returns whether to search again: at once for new queries, later for newer events."""
        old = search.query
        asked = (old.kind, old.text, old.low_ns) != (query.kind, query.text, query.low_ns)
        if asked or query.before < old.before:
            return True
        return search.done and time.monotonic() - self._begun > _AGAIN_SECONDS

    def _event(self, number: int | None) -> str:
        if number is None:
            return ""
        if self._whole[0] != number:
            chunk = self._feed.source.since(number, 1)
            fits = bool(chunk.events) and chunk.cursor == number + 1
            if not fits:
                return self._lacking(number)
            self._whole = number, _whole(chunk.events[0])
        return self._whole[1]

    def _lacking(self, number: int) -> str:
        count = self._feed.folds.cursor
        if number < count:
            return "This event is no longer kept."
        return f"There is no event {count_text(number)}: {count_text(count)} so far, from 0."


def _whole(event: Event | Unknown) -> str:
    name = kind_of(event) + (" (of a newer version)" if isinstance(event, Unknown) else "")
    return f"{name}\n{whole_of(event)}"


def _note(found: int, search: EventSearch) -> str:
    searched = f"{count_text(search.searched)} searched"
    if not search.done:
        return f"searching\u2026 {count_text(found)} found, {searched} so far"
    if search.more:
        return f"the newest {MOST_ROWS} that fit"
    return f"{count_text(found)} found, {searched}"
