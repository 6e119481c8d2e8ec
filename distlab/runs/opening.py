"""Opens a run file for reading, also one that is damaged or was made to do harm."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
import warnings
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Final
from urllib.parse import quote

from distlab.text.bytes import bytes_text

DAMAGED: Final = (sqlite3.DatabaseError, UnicodeDecodeError)
"""The errors of SQLite over a damaged file: the second when the damage is in its message."""

_FILES_OF_ONE: Final = 3
"""A run file that is written has a log and an index of it."""

_MOST_LOG: Final = 256 << 20
"""The bytes of a log that is copied, at most: a recording's is a hundredth of it."""

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


def may_open_files() -> bool:
    """Returns whether the process may open three more files; SQLite does not report that."""
    with ExitStack() as opened:
        try:
            for _ in range(_FILES_OF_ONE):
                opened.enter_context(FileIO(os.devnull))
        except OSError as error:
            return error.errno not in {errno.EMFILE, errno.ENFILE}
    return True


def most_open_files() -> int:
    """Returns how many files the process may have open."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if allowed < 0 else allowed


def most_of_one_run() -> int:
    """Returns how many run files a run may have open: half of the process's files are for it."""
    return most_open_files() // (2 * _FILES_OF_ONE)


def _opened_copy(file: Path, log: Path) -> tuple[sqlite3.Connection, str]:
    """Opens a copy of a run file and of its log.

    A killed process leaves a log. SQLite reads it only where it may write in the folder.
    """
    if log.stat().st_size > _MOST_LOG:
        raise sqlite3.DatabaseError(f"it has {bytes_text(log.stat().st_size)}")
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

    `Run.open(folder).summary()` is good Python, as is a run that is kept to the end, when the
    names of this module may be gone.
    """

    def __del__(self, error: type[Exception] = sqlite3.ProgrammingError) -> None:
        try:
            self.close()
        except error:  # it could not be opened
            return
