"""Reads the events of a run file by number, by kind or by time.

Where rows are missing or damaged, a `Lost` event takes their place, and reading goes on with the
next row that can be read.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from distlab.errors import RecordError
from distlab.events import Chunk, Envelope, Event, Lost, Unknown
from distlab.events.merged import Offsets
from distlab.folds.arrays import MOST_ENTRIES
from distlab.runs.opening import DAMAGED, MOST_BODIES, opened_run_file
from distlab.runs.run_file import being_written, decode, event_of, place_of
from distlab.runs.totals import Totals
from distlab.text.shown import shown

_KINDS: Final[dict[str, type]] = {
    "schema": int,
    "name": str,
    "process": int,
    "process_index": int,
    "processes": int,
    "clock_offset_ns": int,
    "host": str,
    "unix_ns": int,
}
_LARGEST_FACT: Final = 1 << 61
"""Clocks are added to times, and the sum has to be a whole number of SQLite's."""


def _checked_meta(rows: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Returns the facts in the rows of the table `meta`."""
    meta: dict[str, Any] = {}
    for name, value in rows:
        kind = _KINDS.get(name, int | str)
        if isinstance(value, kind) and not (isinstance(value, int) and abs(value) > _LARGEST_FACT):
            meta[str(name)] = value
        elif name in _KINDS:
            expected = "a text" if kind is str else "a whole number of usual size"
            raise ValueError(f"it states {name} as {shown(value)}, which is not {expected}")
    return meta


PAGE: Final = 10_000
"""Events read at once."""

_DECODED: Final = 256
"""Events decoded at once: Python's garbage collector visits all that are alive."""

_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError)
"""The errors of bodies: the last when lists in it are nested very deep."""

_FAR: Final = 1 << 40
_LARGEST: Final = (1 << 63) - 1

_Rows: TypeAlias = list[tuple[int, str, bytes]]
"""Sequence numbers, kinds and bodies."""


class RunFileReader:
    """A run file, opened for reading; it may be used from several threads.

    Raises sqlite3.Error or ValueError where the file is no run file, or can't be read. Warns where
    its log can't be read, so that the last events may be missing.
    """

    def __init__(self, file: Path) -> None:
        self.path = file
        self._place = place_of(file)
        self._database, copy = opened_run_file(file)
        self._remove_copy = copy and weakref.finalize(self, shutil.rmtree, copy, ignore_errors=True)
        try:
            self.meta = _checked_meta(self._database.execute("SELECT key, value FROM meta"))
        except BaseException:
            self._database.close()
            raise
        self.process: int = self.meta.get("process_index", 0)
        self.clock_offset_ns: int = self.meta.get("clock_offset_ns", 0)
        self._processes = (self.process,)
        self._lock = threading.Lock()
        self._last_time_ns = 0
        self._ends_at = _FAR

    @property
    def processes(self) -> tuple[int, ...]:
        """The index of its process."""
        return self._processes

    @property
    def live(self) -> bool:
        """True while its process is alive and has not closed it."""
        # Where another run took its place, that one is written.
        return being_written(self.path) and place_of(self.path) == self._place

    @property
    def living(self) -> frozenset[int]:
        """The index of its process, while that writes the file."""
        return frozenset(self._processes) if self.live else frozenset()

    def since(self, cursor: int, limit: int = PAGE) -> Chunk:
        """Returns up to `limit` events from `cursor` on; see `distlab.Run.since`."""
        rows, after = self._next_rows(cursor, limit)
        if not rows and after > cursor:
            return Chunk([self._lost(cursor, after)], after, 0, self._processes)
        return Chunk(self._events(rows), after, 0, self._processes)

    def pages(
        self, kind: str | None = None, cursor: int = 0, end: int = _FAR
    ) -> Iterator[list[Event | Unknown]]:
        """Yields the events from a sequence number to another, some hundreds at a time."""
        indexed = kind
        while cursor < end:
            limit = min(PAGE, end - cursor)
            if indexed is not None:
                rows, damaged = self._read(cursor, limit, indexed)
                if damaged:
                    indexed = None  # all events are searched
                    continue
                after = rows[-1][0] + 1 if rows else cursor
            else:
                rows, after = self._next_rows(cursor, limit, end)
            if not rows and after > cursor:
                yield [self._lost(cursor, after)]
            elif not rows:
                return
            cursor = after
            rows = [row for row in rows if row[0] < end and kind in (None, row[1])]
            for start in range(0, len(rows), _DECODED):
                yield self._events(rows[start : start + _DECODED])

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
        """Returns the numbers of a summary, and the earliest and latest time; or counts them."""
        kept, ends = self._kept_totals(), self.ends()
        if kept is not None and ends is not None:
            return kept, ends
        counted = Totals()
        times: list[int] = []
        for page in self.pages():
            counted.count(page)
            of_page = [event.time_ns for event in page]
            times += [min(of_page), max(of_page)] if of_page else []
        return counted, (min(times, default=0), max(times, default=0))

    def step_ends(self) -> tuple[int, int] | None:
        """Returns the times of the first and the last step, None without one."""
        found = [
            self._select(f"SELECT time_ns FROM events WHERE kind='step' ORDER BY seq {way} LIMIT 1")  # noqa: S608
            for way in ("ASC", "DESC")
        ]
        times = [row[0] for rows in found for row in rows if isinstance(row[0], int)]
        return (times[0], times[1]) if len(times) == 2 else None

    def ends(self) -> tuple[int, int] | None:
        """Returns the earliest and the latest time in nanoseconds, None when unknown."""
        found = self._select("SELECT min(low_ns), max(high_ns) FROM spans")
        low, high = found[0] if found else (None, None)
        if not isinstance(low, int) or not isinstance(high, int):
            return None  # nothing is stored yet, or of schema 1
        return low, high

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._database.close()
            if self._remove_copy:
                self._remove_copy()

    def _select(self, statement: str, values: Sequence[int] = ()) -> list[Any]:
        """Returns the rows of a small table, none where it is missing or damaged."""
        try:
            with self._lock:
                return self._database.execute(statement, values).fetchall()
        except sqlite3.ProgrammingError as error:
            raise self._closed() from error
        except DAMAGED:
            return []

    def _batches(self, low_ns: int, high_ns: int) -> list[tuple[int, int]]:
        """Returns the first and last numbers of the batches that overlap a time."""
        if self.ends() is None:
            return [(0, _FAR)]  # of schema 1, or damaged: all events are searched
        found = self._select(
            "SELECT first, last FROM spans WHERE low_ns < ? AND high_ns >= ? ORDER BY first",
            (_in_range(high_ns), _in_range(low_ns)),
        )
        joined: list[tuple[int, int]] = []
        for first, last in found:
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], last))
            else:
                joined.append((first, last))
        return joined

    def _kept_totals(self) -> Totals | None:
        try:
            return Totals.of(self._select("SELECT key, value FROM totals"))
        except ValueError:
            return None

    def _closed(self) -> RecordError:
        return RecordError(
            f"The run in {self.path.parent} was closed, so it can't be read. Open it again: "
            "distlab.Run.open(folder)."
        )

    def _next_rows(self, cursor: int, limit: int, end: int = _FAR) -> tuple[_Rows, int]:
        """Returns the rows up to a gap, and the next cursor; of a gap no rows and its end."""
        if cursor > self._ends_at:
            return [], cursor
        rows, damaged = self._read(cursor, limit)
        if damaged and not rows:  # SQLite gives a row once it has read the next one
            rows, damaged = self._read(cursor, 1)
        if not rows:
            return [], self._after_damage(cursor) if damaged else cursor
        if rows[0][0] > cursor:
            self._events(rows[:1])  # what is missing has the time of what follows
            return [], self._end_of_gap(cursor, min(rows[0][0], end))
        if rows[-1][0] - rows[0][0] > len(rows) - 1:
            rows = [row for place, row in enumerate(rows, cursor) if row[0] == place]
        return rows, rows[-1][0] + 1

    def _after_damage(self, cursor: int) -> int:
        """Returns the next number that can be read after a damaged row; none is far beyond it."""
        step = 1
        while step < MOST_ENTRIES:
            rows, damaged = self._read(cursor + step, 1)
            if rows:
                return self._end_of_gap(cursor, rows[0][0])
            if not damaged:
                break
            step *= 2
        return self._end_of_gap(cursor, _FAR)

    def _end_of_gap(self, cursor: int, after: int) -> int:
        """Returns the next cursor; beyond a gap of any length nothing is read."""
        if after - cursor < MOST_ENTRIES:
            return after
        self._ends_at = cursor
        return cursor + 1

    def _read(self, cursor: int, limit: int, kind: str | None = None) -> tuple[_Rows, bool]:
        """Reads rows; returns those before a damaged one, and whether there is one."""
        of_kind = "" if kind is None else "kind = ? AND "
        values = (cursor, _FAR, limit) if kind is None else (kind, cursor, _FAR, limit)
        rows: _Rows = []
        size = 0
        try:
            with self._lock:
                for row in self._database.execute(
                    f"SELECT seq, kind, body FROM events WHERE {of_kind}seq >= ? AND seq < ?"  # noqa: S608
                    " ORDER BY seq LIMIT ?",
                    values,
                ):
                    rows.append(row)
                    size += len(row[2] or b"")
                    if size > MOST_BODIES:
                        break
        except sqlite3.ProgrammingError as error:
            raise self._closed() from error
        except (*DAMAGED, TypeError):
            return rows, True
        return rows, False

    def _lost(self, cursor: int, after: int) -> Lost:
        """Returns the event in the place of rows that are missing or damaged."""
        at_end = cursor == self._ends_at
        more = "; how many events are missing here is not known" if at_end else ""
        reason = f"The run file is damaged{more}."
        return Lost(time_ns=self._last_time_ns, count=after - cursor, reason=reason)

    def _events(self, rows: _Rows) -> list[Event | Unknown]:
        """Decodes rows: all at once, or one by one where that fails."""
        try:
            events: list[Event | Unknown] = [decode(body) for _, _, body in rows]
        except _UNDECODABLE:
            return [self._event(kind, body) for _, kind, body in rows]
        if events:
            self._last_time_ns = events[-1].time_ns
        return events

    def _event(self, kind: str, body: bytes) -> Event | Unknown:
        try:
            event = event_of(kind, body)
        except _UNDECODABLE:
            reason = f"An event of kind {kind!r} in the run file is damaged."
            return Lost(time_ns=self._last_time_ns, count=1, reason=reason)
        self._last_time_ns = event.time_ns
        return event


def _in_range(time_ns: int) -> int:
    return max(-_LARGEST, min(time_ns, _LARGEST))
