"""Opens a run file for reading, also one that is damaged or was made to do harm."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import sys
import warnings
from pathlib import Path
from tempfile import mkdtemp
from typing import Final
from urllib.parse import quote

DAMAGED: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""The errors of SQLite over a damaged file: the second when the damage is in its message."""

MOST_BODIES: Final = 64 << 20
"""The bytes of one event, at most. Rows of a file that was made to may share their pages."""

_BUSY_SECONDS: Final = 5.0


def opened_run_file(file: Path) -> tuple[sqlite3.Connection, str | None]:
    """Opens a run file for reading, also one that was cut off or can't be locked."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        part = file.with_name(file.name + suffix)
        if part.exists() and not (part.is_file() or part.is_dir()):
            raise ValueError(f"{part.name} is no regular file")
    place = _uri(file, "mode=ro")
    try:
        return _opened(place), None
    except DAMAGED:
        log = file.with_name(f"{file.name}-wal")
        if log.exists() and log.stat().st_size:
            try:
                return _opened_copy(file, log)
            except (*DAMAGED, OSError) as error:
                reason = f"{file}: its log can't be read ({error}): its last events may be missing."
                warnings.warn(reason, RuntimeWarning, stacklevel=2)
    try:
        return _opened(f"{place}&immutable=1"), None
    except DAMAGED:
        # SQLite refuses a file shorter than its header states, unless this is set.
        return _opened(place, "PRAGMA writable_schema=ON"), None


def most_open_files() -> int:
    """Returns how many files the process may have open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if allowed < 0 else allowed


def _opened_copy(file: Path, log: Path) -> tuple[sqlite3.Connection, str]:
    """Opens a copy of a run file and its log, which SQLite reads where it may write alone."""
    folder = mkdtemp(prefix="distlab-run-")
    try:
        copied = Path(shutil.copy(file, folder))
        shutil.copy(log, folder)
        return _opened(_uri(copied, "mode=rw")), folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _uri(file: Path, options: str) -> str:
    return f"file:{quote(os.fsencode(file.absolute()))}?{options}"


def _opened(uri: str, first: str = "PRAGMA writable_schema=OFF") -> sqlite3.Connection:
    database = sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_BUSY_SECONDS,
        factory=_Connection,
    )
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BODIES)
        database.execute(first)
        database.set_authorizer(_no_views)
        database.execute("SELECT count(*) FROM meta").fetchone()
        database.execute("SELECT seq, kind, body FROM events LIMIT 0").fetchone()
    except sqlite3.Error as error:
        database.close()
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:
            raise ValueError("one of its tables is a view") from error
        raise
    except BaseException:
        database.close()
        raise
    return database


def _no_views(
    _action: int, _first: str | None, _second: str | None, _database: str | None, view: str | None
) -> int:
    """Has SQLite compile nothing of a view, which may compute without an end."""
    return sqlite3.SQLITE_OK if view is None else sqlite3.SQLITE_DENY


class _Connection(sqlite3.Connection):
    """A connection that closes when nobody holds its reader any more, without a warning.

    At the interpreter's end the names of this module may be gone.
    """

    def __del__(self, error: type[Exception] = sqlite3.ProgrammingError) -> None:
        try:
            self.close()
        except error:  # it could not be opened
            return
