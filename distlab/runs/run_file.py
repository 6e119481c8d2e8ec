"""The run file: one SQLite database for each process, in the run's folder.

`events` holds one row for each event, numbered from 0 without gaps; `body` is
the event in MessagePack. `meta` holds the schema's number and what is known
before the first event, such as the process. `spans` has a row for each batch of
events that was stored: its first and last number and its earliest and latest time,
by which a part of a long run is found; events are nearly in the order of their
times. `totals` holds the numbers of a summary. (Both are missing in files of
schema 1.)

While the file is written it is in WAL mode, so that it survives a killed process
and can be read meanwhile; a closed one is a single file, or holds all by itself where
a reader kept SQLite's files. Next to an open one lies a lock file that its
process holds: by it readers know that the process is alive.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from io import FileIO
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from distlab.errors import RecordError
from distlab.events import SCHEMA, AnyEvent, Event, Lost, Unknown, kind_of
from distlab.file_locks import is_locked, opened_lock
from distlab.runs.totals import Totals
from distlab.text.shown import shown, shown_clause

PATTERN: Final = "process-*.sqlite"
"""The names of the run files in a run folder, and of copies of them."""

_NAME: Final = re.compile(r"process-(0|[1-9][0-9]*)\.sqlite")


def process_of(name: str) -> int | None:
    """Returns the process whose run file has a name; None for the names of other files."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def run_files(folder: Path) -> list[Path]:
    """Returns the run files in a folder in the order of their processes; no copies of files."""
    try:
        numbered = [(process_of(path.name), path) for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    return [path for _, path in sorted((n, path) for n, path in numbered if n is not None)]


def file_of(folder: Path, process: int = 0) -> Path:
    """Returns the path of a process's run file in a run folder."""
    return folder / f"process-{process}.sqlite"


Row: TypeAlias = tuple[int, int, str, bytes]
"""Sequence number, time in nanoseconds, kind, and the event in MessagePack."""

_TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE events (seq INTEGER PRIMARY KEY, time_ns INTEGER, kind TEXT, body BLOB);
CREATE INDEX events_by_kind ON events (kind, seq);
CREATE TABLE spans (first INTEGER PRIMARY KEY, last INTEGER, low_ns INTEGER, high_ns INTEGER);
CREATE TABLE totals (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""
_LARGEST: Final = (1 << 63) - 1
_ROW: Final = "(?,?,?,?)"
_INSERTS: Final = [
    (rows, f"INSERT INTO events VALUES {','.join([_ROW] * rows)}")  # noqa: S608 - no data in it
    for rows in (256, 32, 1)
]
"""Rows, and the statement for so many. A thread releases Python's lock at every
statement, and may wait 5 ms to acquire it again, so there must be few of them."""


def _plain(value: Any) -> Any:
    """Returns NumPy numbers, which MessagePack does not know, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"it holds a {type(value).__name__}")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
decode = msgspec.msgpack.Decoder(AnyEvent).decode
"""Returns the event in a body of a kind that this version knows."""


class RunFile:
    """A run file that is being written, by one thread at a time.

    Process 0 owns the folder: it refuses, or replaces, files of all processes; the others only
    their own. Raises RecordError where the folder can't be written, or holds a run.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        overwrite: bool = False,
        process: int = 0,
        processes: int = 1,
        clock_offset_ns: int = 0,
        of: tuple[int, str] | None = None,
    ) -> None:
        folder = folder.absolute()  # the program may change its directory
        self.path = file_of(folder, process)
        self._end = 0
        self._totals = Totals()
        meta = _meta(name, process, clock_offset_ns, of) | {"processes": processes}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held = run_files(folder) if process == 0 else [self.path]
            _refuse_existing(folder, [path for path in held if path.exists()], overwrite)
            self._lock = _acquire_lock(self.path)
        except RecordError:
            raise
        except OSError as error:
            raise _can_not_write(folder, error) from error
        try:
            _begin(self.path, meta, held)
            self._database = _opened(self.path)
            self._place = place_of(self.path)
        except (OSError, sqlite3.Error) as error:
            refused = _can_not_write(folder, error)  # while the lock's descriptor is in use
            self._release_lock()
            raise refused from error
        except BaseException:  # an interrupt
            self._release_lock()
            raise

    def write(self, events: Sequence[Event | Unknown]) -> list[Lost]:
        """Stores events after those already stored, all or none."""
        if not events:
            return []
        if place_of(self.path) != self._place:
            raise RecordError(
                f"{self.path.parent} was deleted, moved or replaced while a run was recorded to it"
            )
        stored = [encoded(event) for event in events]
        rows: list[Row] = [
            (number, event.time_ns, kind_of(event), body)
            for number, (event, body) in enumerate(stored, self._end)
        ]
        times = [time_ns for _, time_ns, _, _ in rows]
        totals = self._totals.copy()
        totals.add([event for event, _ in stored], [kind for _, _, kind, _ in rows])
        self._database.execute("BEGIN")
        try:
            _insert(self._database, rows)
            span = (rows[0][0], rows[-1][0], min(times), max(times))
            self._database.execute("INSERT INTO spans VALUES (?, ?, ?, ?)", span)
            self._database.executemany("INSERT OR REPLACE INTO totals VALUES (?, ?)", totals.rows())
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        self._end += len(rows)
        self._totals = totals
        return replaced(stored, events)

    def close(self) -> None:
        """Makes a single finished file of it, and releases it. Never raises; twice does nothing."""
        if self._lock.closed:
            return
        try:
            if place_of(self.path) == self._place:
                self._database.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error:  # a reader holds it, so SQLite's files stay
            with suppress(sqlite3.Error):  # where that fails, whoever opens it finds everything
                self._database.execute("PRAGMA busy_timeout=0")
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self._database.close()
            self._release_lock()

    def mark(self, text: str) -> None:
        """Writes a text into the lock file, by which other processes know the folder."""
        self._lock.truncate(0)
        self._lock.write(text.encode())

    def abandon(self) -> None:
        """Releases the file in a forked child: it belongs to the parent, untouched."""
        self._lock.close()

    def _release_lock(self) -> None:
        lock = lock_path(self.path)
        held = os.fstat(self._lock.fileno())
        # Where the folder was replaced meanwhile, the lock there is that of another run.
        if place_of(lock) == (held.st_dev, held.st_ino):
            lock.unlink(missing_ok=True)
        self._lock.close()


def encoded(event: Event | Unknown) -> tuple[Event | Unknown, bytes]:
    """Returns an event as it is stored, and its body; `Lost` when it can't be encoded."""
    try:
        given: Any = event.time_ns
        if not isinstance(given, int) or abs(given) > _LARGEST:
            raise ValueError(f"its time is {shown(given)}")
        return event, _encode(event)
    except Exception as error:  # noqa: BLE001 - one event must not keep the others out of the file
        reason = f"An event of kind {kind_of(event)!r} could not be encoded: {shown_clause(error)}."
        lost = Lost(time_ns=time.monotonic_ns(), count=1, reason=reason)
        return lost, _encode(lost)


def replaced(
    stored: Sequence[tuple[Event | Unknown, bytes]], events: Sequence[Event | Unknown]
) -> list[Lost]:
    """Returns what stands for events that could not be encoded."""
    pairs = zip(stored, events, strict=True)
    return [new for (new, _), old in pairs if new is not old and isinstance(new, Lost)]


def event_of(kind: str, body: bytes) -> Event | Unknown:
    """Returns the event in a row; one that this version does not know as `Unknown`."""
    try:
        event: Event = decode(body)
        return event
    except msgspec.ValidationError:
        fields: dict[str, Any] = msgspec.msgpack.decode(body, type=dict[str, Any])
        time_ns = fields.pop("time_ns", 0)
        fields.pop("kind", None)
        if not isinstance(time_ns, int) or not isinstance(kind, str):
            raise
        return Unknown(time_ns=time_ns, kind=kind, fields=fields)


def lock_path(path: Path) -> Path:
    """Returns the lock file of a run file."""
    return path.with_suffix(".lock")


def being_written(path: Path) -> bool:
    """Returns whether a living process writes this run file."""
    return is_locked(lock_path(path))


def _meta(
    name: str, process: int, clock_offset_ns: int, of: tuple[int, str] | None
) -> dict[str, str | int]:
    pid, host = of or (os.getpid(), socket.gethostname())
    return {
        "schema": SCHEMA,
        "name": name,
        "process": pid,
        "process_index": process,
        "clock_offset_ns": clock_offset_ns,
        "host": host,
        "unix_ns": time.time_ns(),
    }


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
    except BaseException:
        database.close()
        raise
    return database


def _insert(database: sqlite3.Connection, rows: list[Row]) -> None:
    start = 0
    for size, statement in _INSERTS:
        while len(rows) - start >= size:
            values = [value for item in rows[start : start + size] for value in item]
            database.execute(statement, values)
            start += size


def _begin(path: Path, meta: dict[str, str | int], held: Sequence[Path]) -> None:
    """Puts a new run file in the place of those that the folder holds.

    Whenever the process is killed, the folder holds the old run or the new one.
    """
    unfinished = path.with_name(f"{path.name}.new")
    for leftover in (unfinished, *_beside(unfinished)):
        leftover.unlink(missing_ok=True)
    database = sqlite3.connect(unfinished, isolation_level=None)
    try:
        # Half a file is dropped by the next run, so nothing has to survive until it is whole.
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")
        database.executescript(f"BEGIN; {_TABLES} COMMIT;")
        database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    finally:
        database.close()
    for old in {path, *held}:
        _fold_log(old)
    unfinished.replace(path)
    for old in held:
        if old != path:
            old.unlink(missing_ok=True)


def _fold_log(path: Path) -> None:
    """Moves SQLite's log into its run file: SQLite would take it for that of the next file."""
    beside = _beside(path)
    if path.is_file() and not path.is_symlink() and any(one.exists() for one in beside):
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    for one in beside:
        one.unlink(missing_ok=True)


def _beside(path: Path) -> list[Path]:
    """Returns the paths of the files that SQLite keeps next to a database."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def place_of(path: Path) -> tuple[int, int] | None:
    """Returns what identifies the file at a path, None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _can_not_write(folder: Path, error: Exception) -> RecordError:
    why = (error.strerror if isinstance(error, OSError) else None) or error
    return RecordError(
        f"The run folder {folder} can't be written: {why}. "
        "Free space there, or record to a folder that you can write to."
    )


def _refuse_existing(folder: Path, held: Sequence[Path], overwrite: bool) -> None:
    if any(being_written(path) for path in held):
        raise _in_use(folder)
    if held and not overwrite:
        raise RecordError(
            f"A run folder holds one run, and {folder} already holds one. "
            "Name another folder, or pass overwrite=True to replace it."
        )


def _in_use(folder: Path) -> RecordError:
    return RecordError(
        f"A run folder holds one run, and {folder} is being recorded to right now. Close what "
        "record returned for it, end that program, or name another folder."
    )


def _acquire_lock(path: Path) -> FileIO:
    lock = opened_lock(lock_path(path))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise _in_use(path.parent) from error
    except OSError as error:
        lock.close()
        raise RecordError(
            f"A run folder needs a file system with locks, and in {path.parent} a file can't be "
            f"locked: {error.strerror}. Record to a disk of this machine, and move the folder "
            "afterwards."
        ) from error
    return lock
