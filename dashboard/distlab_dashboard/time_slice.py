"""A part of a run: folds of a range of time, read in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from distlab.errors import RecordError
from distlab.events import Envelope, Event, Source, TimedSource
from distlab.folds import Folds

_FAR_NS: Final = 1 << 62
_LIMIT: Final = 5_000


class TimeSlice:
    """Folds of the events from one moment to another.

    It includes standing events from before its beginning (strategies, placements,
    programs), since later events refer to them. Its thread ends when everything that was
    asked for is read.
    """

    def __init__(
        self, source: Source, start_ns: int | None, after: TimeSlice | None = None
    ) -> None:
        self.folds = Folds()
        self._source = source
        self._after = after
        self._start_ns = start_ns
        self._read_ns = -_FAR_NS if start_ns is None else start_ns
        self._wanted_ns = self._read_ns
        self._end: int | None = None
        self._follow_from: int | None = None
        self._begun = False
        self._closed = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def works(self) -> bool:
        """True until its thread has ended."""
        return self._thread is not None

    @property
    def reading(self) -> bool:
        """True while events that were asked for are to be read."""
        return self.works or self._after is not None

    def reach(self, end_ns: int) -> None:
        """Reads on, up to a moment."""
        with self._lock:
            self._wanted_ns = max(self._wanted_ns, end_ns)
            self._work_on()

    def follow(self, end: int) -> None:
        """Reads on, up to the newest event."""
        with self._lock:
            if end > (self._follow_from or 0):
                self._end = end
            self._work_on()

    def close(self) -> None:
        """Stops reading early."""
        self._closed, self._after = True, None

    def _work_on(self) -> None:
        if self._after is not None and not self._after.works:
            self._after = None
        if self._thread is None and self._after is None and self._wants_more():
            self._thread = threading.Thread(
                target=self._work, name="distlab-time-slice", daemon=True
            )
            self._thread.start()

    def _work(self) -> None:
        try:
            with suppress(RecordError):  # the server was stopped, and closed the run
                self._read()
        except Exception:  # noqa: BLE001 - the feed reads the same events and reports it
            self._closed, self._thread = True, None

    def _read(self) -> None:
        while True:
            with self._lock:
                if not self._wants_more():
                    self._thread = None
                    return
                following = self._follows()
            if not self._begun:
                self._begun = True
                self._add_standing()
            if following:
                self._read_following()
            else:
                self._read_past()

    def _follows(self) -> bool:
        return self._end is not None and self._end > (self._follow_from or 0)

    def _wants_more(self) -> bool:
        return not self._closed and (self._read_ns < self._wanted_ns or self._follows())

    def _add_standing(self) -> None:
        """Adds the standing events from before the beginning."""
        if self._start_ns is None:
            return
        self._add_all(events_between(self._source, -_FAR_NS, self._start_ns, standing=True))

    def _read_past(self) -> None:
        low_ns, high_ns = self._read_ns, self._wanted_ns
        self._add_all(events_between(self._source, low_ns, high_ns))
        self._read_ns = high_ns

    def _read_following(self) -> None:
        """Reads by sequence number, not by time: an event may be stored after later ones."""
        end, low_ns = self._end, self._read_ns
        assert end is not None
        if self._follow_from is None:
            self._add_all(events_between(self._source, low_ns, _FAR_NS, before=end))
        else:
            cursor = self._follow_from
            while cursor < end and not self._closed:
                chunk = self._source.since(cursor, min(_LIMIT, end - cursor))
                cursor = max(chunk.cursor, cursor + 1)
                self._add([one for one in chunk.envelopes() if one.event.time_ns >= low_ns])
        self._follow_from = end

    def _add_all(self, pages: Iterator[list[Envelope]]) -> None:
        for envelopes in pages:
            if self._closed:
                return
            self._add(envelopes)

    def _add(self, envelopes: Sequence[Envelope]) -> None:
        if not self._closed and envelopes:
            processes, events = zip(*envelopes, strict=True)
            self.folds.add(events, processes)


def events_between(
    source: Source,
    low_ns: int,
    high_ns: int,
    *,
    before: int | None = None,
    standing: bool = False,
) -> Iterator[list[Envelope]]:
    """Yields the events of a range of time with their processes, some at a time, in order."""
    if isinstance(source, TimedSource):
        yield from source.envelopes_between(low_ns, high_ns, before=before, standing=standing)
        return
    cursor = 0
    while before is None or cursor < before:
        limit = _LIMIT if before is None else min(_LIMIT, before - cursor)
        chunk = source.since(cursor, limit)
        if not chunk.events:
            return
        cursor = chunk.cursor
        yield [
            one
            for one in chunk.envelopes()
            if low_ns <= one.event.time_ns < high_ns
            and (not standing or (isinstance(one.event, Event) and one.event.STANDING))
        ]
