"""A run on a disk that is full says that it has ended, and how many events it lost."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from distlab.recording import Run
from distlab.runs.run_file import RunFile, file_of, lock_path

LIMITED = """
import json
import resource
import sys

import jax.numpy as jnp

import distlab as dl

strategy = dl.MirroredStrategy(["CPU:0"])
with dl.record(sys.argv[1]) as recording:
    recording.log(loss=1.0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    for number in range(3_000):
        recording.log({f"metric{number % 7}": float(number)})
summary = dl.Run.open(sys.argv[1]).summary()
print(json.dumps({key: summary[key] for key in ("status", "lost")}))
"""


@pytest.mark.parametrize("size", [60_000, 70_000, 80_000, 100_000])
def test_a_run_whose_log_may_grow_no_further_has_ended(size: int, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIMITED, str(tmp_path / "run"), str(size)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    summary = json.loads(found.stdout)
    assert summary["status"] == "finished"
    assert summary["lost"] > 1_000


FILLED = """
import resource
import sqlite3
import sys
from pathlib import Path

from distlab.events import Lost, Metric, RunEnd
from distlab.runs.run_file import RunFile

folder, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
for count in range(10, 700, 15):
    file = RunFile(folder / str(count), "run")
    many = [Metric(time_ns=n, step=n, values={f"metric{n % 7}": 1.0 * n}) for n in range(count)]
    stored = 0
    try:
        while stored < 50:
            file.write(many)
            stored += 1
    except sqlite3.Error:
        lost = Lost(time_ns=1, count=count, reason="The disk is full." * 9)
        file.write_last([lost, RunEnd(time_ns=2, status="finished", message="")])
    file.close()
    print(count, stored)
"""


@pytest.mark.parametrize("limit", [50_000, 60_000, 80_000, 100_000, 150_000])
def test_the_end_has_room_whatever_was_stored_before_the_file_may_grow_no_further(
    limit: int, tmp_path: Path
) -> None:
    """SQLite's log held more pages than the file may have, and could not be emptied."""
    subprocess.run(
        [sys.executable, "-c", FILLED, str(tmp_path), str(limit)], check=True, timeout=300
    )
    for folder in tmp_path.iterdir():
        with Run.open(folder) as opened:
            assert opened.summary()["status"] == "finished"
            assert opened.summary()["lost"] == int(folder.name)
    assert len(list(tmp_path.iterdir())) == 46


def test_a_limit_that_is_lifted_is_none_any_more(tmp_path: Path) -> None:
    lifted = (
        FILLED.partition("for count")[0]
        + """
file = RunFile(folder, "run")
event = Metric(time_ns=0, step=0, values={"loss": 1.0})
file.write([event])
try:
    file.write([event] * 9_000)
except sqlite3.Error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    file.write([event] * 9_000)
file.write([RunEnd(time_ns=2, status="finished", message="")])
file.close()
"""
    )
    subprocess.run([sys.executable, "-c", lifted, tmp_path / "run", "80000"], check=True)
    with Run.open(tmp_path / "run") as opened:
        assert len(opened.since(0, 1 << 20).events) == 9_002


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
