"""Reads the events of a run file by number, by kind or by time; reports damaged ones.

Events are numbered without gaps, so a number that no row has is that of an event which is lost.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from distlab.errors import RecordError
from distlab.events import Chunk, Envelope, Event, Lost, Unknown, kind_of
from distlab.events.merged import Offsets
from distlab.runs.meta import checked_meta
from distlab.runs.opening import DAMAGED, MOST_BODIES, opened_run_file
from distlab.runs.run_file import being_written, decode, event_of, place_of
from distlab.runs.totals import Totals

PAGE: Final = 10_000
"""Events read at once."""

_DECODED: Final = 256
"""Events decoded at once: Python's garbage collector visits all that are alive."""

_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError)
"""The errors of bodies: the last when lists in it are nested very deep."""

_FAR: Final = 1 << 40
_LARGEST: Final = (1 << 63) - 1
_MOST_MISSING: Final = 1 << 24
"""Numbers that one gap may have: who merges several files keeps a byte for each."""

_Rows: TypeAlias = list[tuple[Any, str, bytes]]
"""Sequence numbers, which are whole in undamaged files, with kinds and bodies."""


class RunFileReader:
    """A run file, opened for reading; it may be used from several threads.

    Args:
      file: The run file.

    Attributes:
      path: The run file.
      meta: The file's facts before its first event.
      process: Index of the process that wrote it; 0 in files that do not state it.
      clock_offset_ns: Nanoseconds to add to its clock to get that of process 0, when the
        recording began.

    Raises:
      sqlite3.Error: The file is no run file, or can't be read.
      ValueError: The same, where the damage is in what it states, or in SQLite's message.

    Warns:
      RuntimeWarning: The file's log can't be read, so the last events may be missing.
    """

    def __init__(self, file: Path) -> None:
        self.path = file
        self._database, copy, self._place = _opened_in_place(file)
        self._remove_copy = copy and weakref.finalize(self, shutil.rmtree, copy, ignore_errors=True)
        try:
            self.meta = checked_meta(self._database.execute("SELECT key, value FROM meta"))
        except BaseException:
            self._database.close()
            raise
        self.process: int = self.meta.get("process_index", 0)
        self.clock_offset_ns: int = self.meta.get("clock_offset_ns", 0)
        self._processes = (self.process,)
        self._lock = threading.Lock()
        self._last_time_ns = 0
        self._ends_at = _FAR
        self._covered = 0
        self._whole_kinds: set[str] = set()

    @property
    def processes(self) -> tuple[int, ...]:
        """The index of its process."""
        return self._processes

    @property
    def live(self) -> bool:
        """Whether its process is alive and has not closed it."""
        # Where another run took its place, that one is written.
        return being_written(self.path) and place_of(self.path) == self._place

    @property
    def living(self) -> frozenset[int]:
        """The index of its process, while that writes the file."""
        return frozenset(self._processes) if self.live else frozenset()

    def since(self, cursor: int, limit: int = PAGE) -> Chunk:
        """Returns up to `limit` events from `cursor` on; see `distlab.Run.since`."""
        with self._lock:
            rows, lost = self._read_whole(cursor, limit)
        if lost is not None:
            return lost
        after = rows[-1][0] + 1 if rows else cursor
        return Chunk(self._events(rows), after, 0, self._processes)

    def pages(
        self, kind: str | None = None, cursor: int = 0, end: int = _FAR
    ) -> Iterator[list[Event | Unknown]]:
        """Yields the events from a sequence number to another, some hundreds at a time."""
        of_kind = kind if kind is None or self._has_all_of(kind) else None
        while cursor < end:
            limit = min(PAGE, end - cursor)
            lost = None
            with self._lock:
                if of_kind is None:
                    rows, lost = self._read_whole(cursor, limit, end)
                else:
                    rows, damaged = self._read(cursor, limit, of_kind)
                    if damaged and not rows:
                        of_kind = None  # the index is damaged: search all events
                        continue
            if lost is not None:
                yield lost.events
                cursor = lost.cursor
            elif rows:
                cursor = rows[-1][0] + 1
                rows = [row for row in rows if row[0] < end]
                for start in range(0, len(rows), _DECODED):
                    part = rows[start : start + _DECODED]
                    events = self._events(part)
                    if of_kind != kind:
                        events = [
                            e for r, e in zip(part, events, strict=True) if _is_of(kind, r, e)
                        ]
                    yield events
            else:
                return

    def between(
        self,
        low_ns: int,
        high_ns: int,
        kinds: Sequence[str | None] = (None,),
        before: int | None = None,
    ) -> Iterator[list[Envelope]]:
        """Yields the events of a range of time, some hundreds at a time."""
        for first, last in self._batches(low_ns, high_ns):
            end = last + 1 if before is None else min(last + 1, before)
            for kind in kinds:
                for page in self.pages(kind, first, end):
                    yield [
                        Envelope(self.process, event)
                        for event in page
                        if low_ns <= event.time_ns < high_ns
                    ]

    def offsets(self) -> Offsets:
        """Returns what to add to its clock to get that of process 0, as far as it was measured."""
        found = Offsets(self.clock_offset_ns)
        for page in self.pages("clock_offset"):
            for event in page:
                found.note(event)
        return found

    def totals(self) -> tuple[Totals, tuple[int, int]]:
        """Returns the numbers of a summary, and the earliest and the latest time.

        They are counted where the file does not hold them (schema 1, or damaged). Of rows that are
        missing it knows by the first and the last number.
        """
        kept, ends = self._kept_totals(), self.ends()
        if kept is not None and ends is not None:
            kept.lost += self._missing(kept.events.total())
            return kept, ends
        counted = Totals()
        times: list[tuple[int, int]] = []
        for page in self.pages():
            counted.count(page)
            if page:
                of_page = [event.time_ns for event in page]
                times.append((min(of_page), max(of_page)))
        low = min((low for low, _ in times), default=0)
        return counted, (low, max((high for _, high in times), default=low))

    def ends(self) -> tuple[int, int] | None:
        """Returns the earliest and the latest time in nanoseconds, None when unknown."""
        try:
            with self._lock:
                low, high = self._database.execute(
                    "SELECT min(low_ns), max(high_ns) FROM spans"
                ).fetchone()
        except sqlite3.ProgrammingError as error:
            raise self._closed() from error
        except DAMAGED:
            return None
        if not isinstance(low, int) or not isinstance(high, int):
            return None  # nothing is stored yet, or the spans are damaged
        return low, high

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._database.close()
            if self._remove_copy:
                self._remove_copy()

    def _batches(self, low_ns: int, high_ns: int) -> list[tuple[int, int]]:
        """Returns the first and last numbers of the batches that overlap a time."""
        try:
            with self._lock:
                if not self._all_in_spans():
                    return [(0, _FAR)]
                found = self._database.execute(
                    "SELECT first, last, low_ns, high_ns FROM spans"
                    " WHERE low_ns < ? AND high_ns >= ? OR typeof(low_ns) <> 'integer'"
                    " OR typeof(high_ns) <> 'integer' ORDER BY first",
                    (_in_range(high_ns), _in_range(low_ns)),
                ).fetchall()
        except sqlite3.ProgrammingError as error:
            raise self._closed() from error
        except DAMAGED:
            return [(0, _FAR)]  # of schema 1, or damaged: all events are searched
        joined: list[tuple[int, int]] = []
        for first, last, *times in found:
            if not all(isinstance(number, int) for number in (first, last, *times)):
                return [(0, _FAR)]
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        return joined

    def _all_in_spans(self) -> bool:
        """Returns whether each event is in one of the spans; looks at new ones only.

        Of their times the first and the last one are compared with those of events.
        """
        stored = self._stored()  # first: events and spans are stored together
        found = self._database.execute(
            "SELECT min(first), max(first), max(last), sum(last - first + 1) FROM spans"
            " WHERE first >= ? OR first < 0",
            (self._covered,),
        ).fetchone()
        if found[0] is None:
            return stored <= self._covered
        if not all(isinstance(number, int) for number in found):
            return False
        low, newest, high, count = found
        (wrong,) = self._database.execute(
            "SELECT count(*) FROM spans JOIN events ON seq = first"
            " WHERE first IN (?, ?) AND time_ns NOT BETWEEN low_ns AND high_ns",
            (low, newest),
        ).fetchone()
        if wrong or low != self._covered or high + 1 - low != count:
            return False
        self._covered = high + 1
        return stored <= self._covered

    def _kept_totals(self) -> Totals | None:
        with self._lock:
            return self._totals()

    def _totals(self) -> Totals | None:
        try:
            return Totals.of(self._database.execute("SELECT key, value FROM totals").fetchall())
        except sqlite3.ProgrammingError as error:
            raise self._closed() from error
        except (*DAMAGED, ValueError):
            return None

    def _has_all_of(self, kind: str) -> bool:
        """Returns whether the column of kinds names a kind as often as it was stored.

        Where it is damaged, events whose bodies are whole would be hidden.
        """
        if kind in self._whole_kinds:
            return True
        try:
            with self._lock:
                # One statement: more may be stored meanwhile.
                packed, named = self._database.execute(
                    "SELECT (SELECT value FROM totals WHERE key = 'events'),"
                    " (SELECT count(*) FROM events WHERE kind = ?)",
                    (kind,),
                ).fetchone()
            stored = msgspec.msgpack.decode(packed, type=dict[str, int]).get(kind, 0)
        except sqlite3.ProgrammingError as error:
            raise self._closed() from error
        except (*DAMAGED, *_UNDECODABLE):
            return True  # of schema 1, or the totals are damaged: nobody knows
        if named == stored:
            self._whole_kinds.add(kind)
        return bool(named == stored)

    def _stored(self) -> int:
        """Returns how many events the file states to have, 0 where that is not known."""
        totals = self._totals()
        return 0 if totals is None else min(totals.events.total(), _FAR)

    def _missing(self, stored: int) -> int:
        """Returns how many of the events that were stored have no row any more."""
        try:
            with self._lock:
                # Two, or SQLite would visit all rows.
                ends = "SELECT (SELECT min(seq) FROM events), (SELECT max(seq) FROM events)"
                if self._database.execute(ends).fetchone() == (0, stored - 1):
                    return 0
                held = "SELECT count(*) FROM events WHERE seq >= 0 AND seq < ?"
                (rows,) = self._database.execute(held, (min(stored, _FAR),)).fetchone()
        except sqlite3.ProgrammingError as error:
            raise self._closed() from error
        except DAMAGED:
            return 0  # who reads the events is told
        return max(0, stored - rows)

    def _closed(self) -> RecordError:
        return RecordError(
            f"The run in {self.path.parent} was closed, so it can't be read. Open it again: "
            "distlab.Run.open(folder)."
        )

    def _read_whole(self, cursor: int, limit: int, end: int = _FAR) -> tuple[_Rows, Chunk | None]:
        """Reads rows up to the first that is missing or damaged."""
        if cursor >= self._ends_at:
            return [], self._rest() if cursor == self._ends_at else None
        rows, damaged = self._read(cursor, limit)
        if not rows and not damaged and limit and cursor < (stored := min(self._stored(), end)):
            rows, damaged = self._read(cursor, limit)  # they may have been stored meanwhile
            if not rows and not damaged:
                return [], self._gap(cursor, stored)
        if not rows and damaged:  # Python gives a row once the next one is read
            rows, damaged = self._read(cursor, min(limit, 1))
        if not rows:
            return [], self._skip(cursor) if damaged else None
        if rows[0][0] == cursor:
            return rows, None
        self._events(rows[:1])  # what is missing has the time of what follows
        return [], self._gap(cursor, min(rows[0][0], end))

    def _gap(self, cursor: int, after: int) -> Chunk:
        """Returns a `Lost` event for numbers that no row has."""
        if after - cursor > _MOST_MISSING:
            self._ends_at = cursor
            return self._rest()
        most = max(self._stored() - cursor, 1)
        lost = Lost(
            time_ns=self._last_time_ns,
            count=min(after - cursor, most),
            reason="The run file is damaged: events are missing here.",
        )
        return Chunk([lost], after, 0, self._processes)

    def _rest(self) -> Chunk:
        """Returns a `Lost` event for all from the last number that can be read."""
        reason = "The run file is damaged; how many events are missing here is not known."
        lost = Lost(time_ns=self._last_time_ns, count=1, reason=reason)
        return Chunk([lost], self._ends_at + 1, 0, self._processes)

    def _read(self, cursor: int, limit: int, kind: str | None = None) -> tuple[_Rows, bool]:
        """Reads rows up to a damaged one, of all kinds up to a gap, too."""
        rows: _Rows = []
        if cursor >= self._ends_at:
            return rows, False
        try:
            found = (
                self._database.execute(
                    "SELECT seq, kind, body FROM events"
                    " WHERE seq >= ? AND seq < ? ORDER BY seq LIMIT ?",
                    (cursor, _FAR, limit),
                )
                if kind is None
                else self._database.execute(
                    "SELECT seq, kind, body FROM events"
                    " WHERE kind = ? AND seq >= ? ORDER BY seq LIMIT ?",
                    (kind, cursor, limit),
                )
            )
            size = 0
            for row in found:
                rows.append(row)
                size += len(row[2]) if isinstance(row[2], str | bytes) else 0
                if size > MOST_BODIES:
                    break
        except sqlite3.ProgrammingError as error:
            raise self._closed() from error
        except DAMAGED:
            return _ascending(rows, cursor), True
        ascending = _ascending(rows, cursor)
        whole = ascending if kind is not None else _without_gaps(ascending)
        return whole, len(ascending) < len(rows)

    def _skip(self, cursor: int) -> Chunk:
        """Returns a `Lost` event for the damaged part that begins at `cursor`."""
        bad, good = cursor, cursor + 1
        while good - cursor < _MOST_MISSING and self._read(good, 1)[1]:
            bad, good = good, cursor + 2 * (good - cursor)
        if good - cursor >= _MOST_MISSING or not self._read(good, 1)[0]:
            self._ends_at = cursor
            return self._rest()
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (middle, good) if self._read(middle, 1)[1] else (bad, middle)
        reason = "The run file is damaged."
        lost = Lost(time_ns=self._last_time_ns, count=good - cursor, reason=reason)
        return Chunk([lost], good, 0, self._processes)

    def _events(self, rows: _Rows) -> list[Event | Unknown]:
        """Decodes rows: all at once, or one by one where that fails."""
        try:
            events: list[Event | Unknown] = [decode(body) for _, _, body in rows]
            if any(event.time_ns > _LARGEST for event in events):
                raise TypeError("a time is beyond those of SQLite")
        except _UNDECODABLE:
            return [self._event(kind, body) for _, kind, body in rows]
        if events:
            self._last_time_ns = events[-1].time_ns
        return events

    def _event(self, kind: str, body: bytes) -> Event | Unknown:
        try:
            event = event_of(kind, body)
            if event.time_ns > _LARGEST:
                raise TypeError("a time is beyond those of SQLite")
        except _UNDECODABLE:
            # A file that was cut off has events without a body, too.
            reason = f"An event of kind {kind!r} in the run file is damaged."
            return Lost(time_ns=self._last_time_ns, count=1, reason=reason)
        self._last_time_ns = event.time_ns
        return event


def _is_of(kind: str | None, row: tuple[Any, str, bytes], event: Event | Unknown) -> bool:
    """Returns whether an event is of a kind, or stands for a damaged one that may have been."""
    return kind_of(event) == kind or (isinstance(event, Lost) and row[1] == kind)


def _in_range(time_ns: int) -> int:
    return max(-_LARGEST, min(time_ns, _LARGEST))


def _ascending(rows: _Rows, cursor: int) -> _Rows:
    """Returns the rows up to the first that is out of order, as in a damaged tree."""
    last = cursor - 1
    for place, row in enumerate(rows):
        if not isinstance(row[0], int) or row[0] <= last:
            return rows[:place]
        last = row[0]
    return rows


def _without_gaps(rows: _Rows) -> _Rows:
    """Returns the rows up to the first gap between two of them."""
    if not rows or rows[-1][0] - rows[0][0] == len(rows) - 1:
        return rows
    return [row for place, row in enumerate(rows, rows[0][0]) if row[0] == place]


def _opened_in_place(file: Path) -> tuple[sqlite3.Connection, str | None, tuple[int, int] | None]:
    """Opens a run file as `opened_run_file` does, and returns what identifies it, too."""
    while True:
        place = place_of(file)
        database, copy = opened_run_file(file)
        if place_of(file) == place:
            return database, copy, place
        database.close()  # another run took its place meanwhile
        if copy:
            shutil.rmtree(copy, ignore_errors=True)
