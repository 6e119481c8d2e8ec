"""What a run file states before its first event, checked."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from distlab.runs.opening import opened_run_file
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
_LARGEST: Final = 1 << 61
"""Clocks are added to times, and the sum has to be a whole number of SQLite's."""


def checked_meta(rows: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Returns the facts in the rows of the table `meta`."""
    meta: dict[str, Any] = {}
    for name, value in rows:
        kind = _KINDS.get(name, int | str)
        if isinstance(value, kind) and not (isinstance(value, int) and abs(value) > _LARGEST):
            meta[str(name)] = value
        elif name in _KINDS:
            expected = "a text" if kind is str else "a whole number of usual size"
            raise ValueError(f"it states {name} as {shown(value)}, which is not {expected}")
    return meta


def stated_process(file: Path) -> int | None:
    """Returns the index of the process that a run file states to be of."""
    try:
        database, copy = opened_run_file(file)
    except (sqlite3.Error, OSError, ValueError, RuntimeWarning):
        return None
    try:
        return checked_meta(database.execute("SELECT key, value FROM meta")).get("process_index")
    except (sqlite3.Error, ValueError):
        return None
    finally:
        database.close()
        if copy:
            shutil.rmtree(copy, ignore_errors=True)
