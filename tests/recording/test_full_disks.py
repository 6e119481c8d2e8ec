"""A run on a full disk has its end, and the number of events that it lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from distlab.recording import Run
from distlab.runs.run_file import RunFile, file_of, lock_path


def test_the_end_has_the_room_that_is_held_in_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_path(file_of(tmp_path / "run"))
    full = False
    write = RunFile.write

    def write_where_there_is_room(file: RunFile, events: Any) -> Any:
        if full and lock.stat().st_size:
            raise sqlite3.OperationalError("database or disk is full")
        return write(file, events)

    monkeypatch.setattr(RunFile, "write", write_where_there_is_room)
    run = dl.record(tmp_path / "run")
    assert lock.stat().st_size > 50_000
    full = True
    for number in range(10):
        run.log(loss=float(number))
    with pytest.warns(RuntimeWarning, match="disk is full"):
        run.close()
    assert not lock.exists()
    with Run.open(tmp_path / "run") as opened:
        assert opened.summary()["status"] == "finished"
        assert opened.summary()["lost"] >= 10
