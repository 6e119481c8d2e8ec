"""A recorded run, read from its folder, finished or still being written."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import msgspec

from distlab._counts import is_count
from distlab.errors import ArgumentValueError, NotARunError, RecordError
from distlab.events import Advice, Chunk, Event, Lost, Unknown
from distlab.insight import advise
from distlab.recording.exports import export
from distlab.recording.exports.frame import to_pandas
from distlab.recording.run_file import PATTERN, being_written, event_of
from distlab.recording.summary import summarize

_PAGE: Final = 10_000
_FAR: Final = 1 << 40
_BUSY_SECONDS: Final = 5.0


class Run:
    """A recorded run, in the order in which it was recorded.

    Made by `Run.open`. It may be used from several threads. Where the file is
    damaged, a `Lost` event stands for what can't be read.

    Attributes:
      path: the run's folder.
      meta: what the file knows before its first event: the `schema`'s number,
        the run's `name`, the `process`, its `host`, and when it began
        (`unix_ns`).
    """

    def __init__(self, path: Path, file: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self.meta: dict[str, Any] = dict(database.execute("SELECT key, value FROM meta"))
        self._file = file
        self._database = database
        self._lock = threading.Lock()
        self._last_time_ns = 0
        self._ends_at = _FAR

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Opens a run folder for reading.

        Args:
          path: the folder given to `distlab.record`.

        Raises:
          NotARunError: it does not hold a run, or one that can't be read.
        """
        if not isinstance(path, str | os.PathLike):
            raise NotARunError(
                f"A run is opened by its folder, got a {type(path).__name__}: {path!r:.80}. Name "
                "the folder that was given to record."
            )
        folder = Path(path)
        files = sorted(folder.glob(PATTERN)) if folder.is_dir() else []
        if not files:
            what = "holds none" if folder.is_dir() else "is none"
            what = what if folder.exists() else "does not exist"
            raise NotARunError(
                f"A run is a folder that distlab.record wrote, and {folder} {what}. "
                "Name the folder that was given to record."
            )
        try:
            return cls(folder, files[0], _connect(files[0]))
        except (sqlite3.Error, OSError) as error:
            raise NotARunError(
                f"The run in {folder} can't be read: {error}. "
                "Its file is damaged, or was not written by distlab."
            ) from error

    @property
    def live(self) -> bool:
        """True while the process that records it is alive and has not closed it."""
        return being_written(self._file)

    def since(self, cursor: int, limit: int = _PAGE) -> Chunk:
        """Returns up to `limit` events from `cursor` on, at once (never waits).

        Args:
          cursor: sequence number to begin with, 0 for the first event.
          limit: the most events to give.

        Returns:
          The events and where to go on; none are given while there is nothing new.

        Raises:
          ArgumentValueError: the cursor is no sequence number.
          RecordError: the run was closed.
        """
        if not is_count(cursor):
            raise ArgumentValueError(
                f"cursor must be a sequence number, from 0, got {cursor!r:.80}. Give 0 for the "
                "first event, or the `cursor` of the chunk before."
            )
        with self._lock:
            rows, damaged = self._read(cursor, limit)
            if damaged and not rows:
                return self._skip(cursor)
        events = [self._event(kind, body) for _, kind, body in rows]
        return Chunk(events, rows[-1][0] + 1 if rows else cursor, 0)

    def events(self, kind: str | None = None) -> Iterator[Event | Unknown]:
        """Goes through the events stored so far, oldest first.

        Args:
          kind: only this kind, as run files spell it, such as `"step_ready"`.

        Raises:
          RecordError: the run was closed.
        """
        cursor = 0
        while True:
            with self._lock:
                rows, damaged = self._read(cursor, _PAGE, kind)
                skipped = self._skip(cursor) if damaged and not rows else None
            if skipped is not None:
                yield from skipped.events
                cursor = skipped.cursor
            elif rows:
                yield from (self._event(kind, body) for _, kind, body in rows)
                cursor = rows[-1][0] + 1
            else:
                return

    def summary(self) -> dict[str, Any]:
        """Returns what the run was, for a table of runs.

        Returns:
          `name`, `path`, `status` (`"running"`, `"finished"`, `"failed"`,
          `"interrupted"`, or `"killed"` when its process ended without saying
          so), `message`, `started` (seconds since 1970), `seconds`, `host`,
          `process`, `platform`, `devices` (names), `strategies` (class names),
          `replicas` (how many each of those has), `steps`, `examples`,
          `total_steps`, `metrics` (the last value of each name), `lost` and
          `versions`.
        """
        return summarize(self)

    def advice(self) -> list[Advice]:
        """Says what the run could do better; see `distlab.insight.advise`.

        Returns:
          What was found, what costs the most first; empty when nothing was.

        Raises:
          RecordError: the run was closed.
        """
        return advise(self)

    def to_pandas(self, kind: str) -> Any:
        """Returns the events of one kind as a pandas table.

        Args:
          kind: as run files spell it, such as `"step"`; docs/events.md lists
            them with their fields.

        Returns:
          A `pandas.DataFrame` with a row for each event and a column for each
          field, `time_ns` first.

        Raises:
          ArgumentValueError: there is no such kind.
          MissingExtraError: pandas is not installed.
          RecordError: the run was closed.
        """
        return to_pandas(self, kind)

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Writes the run to a file for other tools.

        Args:
          path: the file; its suffix says what is written. `.json`: a timeline
            that Perfetto (ui.perfetto.dev) and Chrome open, with a track for
            the Python calls, one for the input, and one for each replica's
            device. `.jsonl`: each event on a line, after a line about the file.
            `.parquet`: the same, a row each (needs pyarrow).
          overwrite: whether a file that exists may be replaced.

        Returns:
          The file.

        Raises:
          ArgumentValueError: the suffix is none of those.
          MissingExtraError: pyarrow is needed and not installed.
          ArgumentTypeError: `path` is no path.
          RecordError: the file exists or can't be written, or the run was closed.
        """
        return export(self, path, overwrite=overwrite)

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(
        self, cursor: int, limit: int, kind: str | None = None
    ) -> tuple[list[tuple[int, str, bytes]], bool]:
        """Reads rows up to a damaged one. Returns them, and whether there is one."""
        rows: list[tuple[int, str, bytes]] = []
        if cursor >= self._ends_at:
            return rows, False
        try:
            found = (
                self._database.execute(
                    "SELECT seq, kind, body FROM events WHERE seq >= ? ORDER BY seq LIMIT ?",
                    (cursor, limit),
                )
                if kind is None
                else self._database.execute(
                    "SELECT seq, kind, body FROM events"
                    " WHERE kind = ? AND seq >= ? ORDER BY seq LIMIT ?",
                    (kind, cursor, limit),
                )
            )
            rows.extend(found)
        except sqlite3.ProgrammingError as error:
            raise RecordError(
                f"The run in {self.path} was closed, so it can't be read. Open it again: "
                "distlab.Run.open(folder)."
            ) from error
        except sqlite3.DatabaseError:
            return rows, True
        return rows, False

    def _skip(self, cursor: int) -> Chunk:
        """Gives a `Lost` event for the damaged part that begins at `cursor`."""
        bad, good = cursor, cursor + 1
        while good - cursor < _FAR and self._read(good, 1)[1]:
            bad, good = good, cursor + 2 * (good - cursor)
        if good - cursor >= _FAR or not self._read(good, 1)[0]:
            self._ends_at = cursor
            reason = "The run file is damaged; how many events are missing here is not known."
            return Chunk([Lost(time_ns=self._last_time_ns, count=1, reason=reason)], cursor + 1, 0)
        while good - bad > 1:
            middle = (bad + good) // 2
            bad, good = (middle, good) if self._read(middle, 1)[1] else (bad, middle)
        reason = "The run file is damaged."
        lost = Lost(time_ns=self._last_time_ns, count=good - cursor, reason=reason)
        return Chunk([lost], good, 0)

    def _event(self, kind: str, body: bytes) -> Event | Unknown:
        try:
            event = event_of(kind, body)
        except msgspec.DecodeError:
            reason = f"An event of kind {kind!r} in the run file is damaged."
            return Lost(time_ns=self._last_time_ns, count=1, reason=reason)
        self._last_time_ns = event.time_ns
        return event


def _connect(file: Path) -> sqlite3.Connection:
    """Opens a run file for reading, also one that was cut off or can't be locked."""
    place = f"file:{quote(str(file.absolute()))}?mode=ro"
    ways = ((place, "OFF"), (f"{place}&immutable=1", "OFF"), (place, "ON"))
    for last, (uri, cut_off) in enumerate(ways, 1 - len(ways)):
        database = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS
        )
        try:
            # SQLite refuses a file shorter than it says, unless told that this is known.
            database.execute(f"PRAGMA writable_schema={cut_off}")
            database.execute("SELECT count(*) FROM meta").fetchone()
            database.execute("SELECT 1 FROM events LIMIT 0").fetchone()
        except sqlite3.DatabaseError:
            database.close()
            if last == 0:
                raise
        else:
            return database
    raise AssertionError("the last way raises or returns")
