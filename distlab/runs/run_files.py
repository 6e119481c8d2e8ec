"""The run files of a folder as one: those of several processes are merged."""

from __future__ import annotations

import heapq
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from distlab.errors import NotARunError
from distlab.events import Chunk, Envelope, Event, Unknown
from distlab.events.merged import Merged, Offsets, Origin
from distlab.runs.run_file import run_files
from distlab.runs.run_file_reader import PAGE, RunFileReader
from distlab.runs.totals import Totals
from distlab.text.shown import shown_clause

_EVENTS_AT_ONCE: Final = 256

_LOOK_SECONDS: Final = 0.5
"""Seconds between two looks for the files of processes that have not begun theirs."""


def open_run_files(files: Sequence[Path]) -> RunReader:
    """Opens the run files of a folder, at least one."""
    if len(files) == 1:
        reader = RunFileReader(files[0])
        return reader if reader.meta.get("processes", 1) <= 1 else MergedReaders([reader])
    readers: list[RunFileReader] = []
    try:
        for file in files:
            readers.append(_one_of_several(file))  # noqa: PERF401 - those opened are closed below
    except BaseException:
        for reader in readers:
            reader.close()
        raise
    return MergedReaders(readers)


class MergedReaders:
    """The run files of several processes in one order, on the clock of process 0.

    A process may begin its file later than others: it is read from then on.
    """

    def __init__(self, readers: Sequence[RunFileReader]) -> None:
        self.meta = readers[0].meta
        self._readers = list(readers)
        self._known = {reader.path for reader in readers}
        self._merged = Merged([_origin(reader) for reader in readers])
        self._expected = max(reader.meta.get("processes", 1) for reader in readers)
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._lock = threading.Lock()

    @property
    def processes(self) -> tuple[int, ...]:
        """Indices of the processes."""
        return tuple(sorted(reader.process for reader in self._readers))

    @property
    def living(self) -> frozenset[int]:
        """Indices of the processes that still write their files."""
        return frozenset(reader.process for reader in self._readers if reader.live)

    @property
    def live(self) -> bool:
        """True while a process is alive and has not closed its file."""
        return any(reader.live for reader in self._readers)

    def since(self, cursor: int, limit: int = PAGE) -> Chunk:
        """Returns up to `limit` events from `cursor` on; see `distlab.Run.since`."""
        self._look()
        return self._merged.since(cursor, limit)

    def pages(self, kind: str | None = None) -> Iterator[list[Event | Unknown]]:
        """Yields the events, some hundreds at a time."""
        for page in self._in_order([reader.pages(kind) for reader in self._readers]):
            yield [event for _, event in page]

    def between(
        self,
        low_ns: int,
        high_ns: int,
        kinds: Sequence[str | None] = (None,),
        before: int | None = None,
    ) -> Iterator[list[Envelope]]:
        """Yields the events of a range of time, some hundreds at a time."""
        ends: Sequence[int | None] = [None] * len(self._readers)
        if before is not None:
            ends = self._merged.vector(before)
        found = []
        for reader, end in zip(self._readers, ends, strict=True):
            least, most = reader.offsets().range
            found.append(reader.between(low_ns - most, high_ns - least, kinds, end))
        for page in self._in_order([([one.event for one in p] for p in own) for own in found]):
            yield [one for one in page if low_ns <= one.event.time_ns < high_ns]

    def totals(self) -> tuple[Totals, tuple[int, int]]:
        """Returns the numbers of a summary, and the earliest and the latest time."""
        found = [reader.totals() for reader in self._readers]
        ends = [
            _moved(reader.offsets(), own)
            for reader, (_, own) in zip(self._readers, found, strict=True)
        ]
        return Totals.over_processes([totals for totals, _ in found]), _outermost(ends)

    def step_ends(self) -> tuple[int, int] | None:
        """Returns the times of the first and the last step, which all processes take."""
        found = (reader.step_ends() for reader in self._readers)
        return next((ends for ends in found if ends is not None), None)

    def ends(self) -> tuple[int, int] | None:
        """Returns the earliest and the latest time, None when they are not stored."""
        found = [
            _moved(reader.offsets(), ends)
            for reader in self._readers
            if (ends := reader.ends()) is not None
        ]
        return _outermost(found) if found else None

    def close(self) -> None:
        """Closes the files."""
        for reader in self._readers:
            reader.close()

    def _look(self) -> None:
        """Adds the files of processes that began since the last look."""
        with self._lock:
            if len(self._readers) >= self._expected or time.monotonic() < self._next_look:
                return
            self._next_look = time.monotonic() + _LOOK_SECONDS
            for file in run_files(self._readers[0].path.parent):
                if file in self._known:
                    continue
                reader = _one_of_several(file)
                self._known.add(file)
                self._readers.append(reader)
                self._merged.add(_origin(reader))

    def _in_order(
        self, pages: Sequence[Iterator[list[Event | Unknown]]]
    ) -> Iterator[list[Envelope]]:
        timed = (_timed(one, reader) for reader, one in zip(self._readers, pages, strict=True))
        envelopes = (one for _, one in heapq.merge(*timed, key=lambda item: item[0]))
        while page := list(islice(envelopes, _EVENTS_AT_ONCE)):
            yield page


def _one_of_several(file: Path) -> RunFileReader:
    """Opens a run file of several processes."""
    try:
        return RunFileReader(file)
    except (sqlite3.Error, OSError, ValueError) as error:
        raise NotARunError(
            f"The run in {file.parent} can't be read: its file {file.name} is damaged, or was not "
            f"written by distlab: {shown_clause(error)}. Without it in the folder the other "
            "processes' files can be read."
        ) from error


def _origin(reader: RunFileReader) -> Origin:
    return Origin(reader, reader.clock_offset_ns, lambda: reader.live)


def _timed(
    pages: Iterable[list[Event | Unknown]], reader: RunFileReader
) -> Iterator[tuple[int, Envelope]]:
    """Yields events with the time that orders them, which never decreases."""
    latest = -(1 << 63)
    offsets = reader.offsets()
    for page in pages:
        for event in page:
            moved = offsets.moved(event)
            latest = max(latest, moved.time_ns)
            yield latest, Envelope(reader.process, moved)


def _moved(offsets: Offsets, ends: tuple[int, int]) -> tuple[int, int]:
    """Returns an earliest and a latest time of a process on the clock of process 0."""
    return ends[0] + offsets.at(ends[0]), ends[1] + offsets.at(ends[1])


def _outermost(ends: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return min(low for low, _ in ends), max(high for _, high in ends)


RunReader: TypeAlias = RunFileReader | MergedReaders
"""The source of a `Run`: one run file, or those of several processes."""
