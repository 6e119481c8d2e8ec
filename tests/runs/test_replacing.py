"""`overwrite=True` keeps the old run or has the new one, whenever the process is killed."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from distlab.runs.run import Run
from distlab.runs.run_file import RunFile
from tests.recording import samples
from tests.recording.processes import ROOT

STEPS = 100

AT_EACH_LINE = """
import os, signal, sys
from pathlib import Path
from distlab.runs import run_file
from distlab.runs.run import Run
from distlab.runs.run_file import RunFile
from tests.recording import samples

names = "_begin", "_fold_log"
folder, killed = Path(sys.argv[1]), sys.argv[2] == "killed"

def record(name):
    file = RunFile(folder, name, overwrite=True)
    file.write([samples.step(number) for number in range(100)])
    return file

def kill_at(line):
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename != run_file.__file__ or frame.f_code.co_name not in names:
            return None
        seen += event == "line"
        if seen == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)

def child(work):
    number = os.fork()
    if number == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])

def old():
    file = record("old")
    if not killed:
        file.close()

line, found = 1, []
while True:
    if killed or not found or found[-1][0] == "new":
        assert child(old) == 0
    ended = child(lambda: (kill_at(line), RunFile(folder, "new", overwrite=True)))
    with Run.open(folder) as run:
        summary = run.summary()
        steps = len(list(run.events("step")))
    found.append((summary["name"], steps))
    if ended == 0:
        break
    assert ended == -signal.SIGKILL
    line += 1
print(line, sorted(set(found)))
"""


def test_killed_at_any_line_the_old_run_or_the_new_one_is_there(tmp_path: Path) -> None:
    for old in ("closed", "killed"):
        done = subprocess.run(
            [sys.executable, "-c", AT_EACH_LINE, str(tmp_path / old), old],
            capture_output=True, text=True, timeout=240, check=True, cwd=ROOT,
        )  # fmt: skip
        lines, found = done.stdout.split(" ", 1)
        assert int(lines) > 20
        assert found == "[('new', 0), ('old', 100)]\n"


def test_what_a_killed_replacement_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    for left in ("new", "new-journal", "wal", "journal"):
        between = "." if left.startswith("new") else "-"
        (tmp_path / f"process-0.sqlite{between}{left}").write_bytes(b"half")
    RunFile(tmp_path, "whole").close()
    assert [path.name for path in tmp_path.iterdir()] == ["process-0.sqlite"]
    with Run.open(tmp_path) as run:
        assert run.meta["name"] == "whole"


def test_a_log_beside_an_old_run_is_not_taken_for_the_new_ones(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "written", "old")
    file.write([samples.step(number) for number in range(STEPS)])
    killed = shutil.copytree(tmp_path / "written", tmp_path / "killed")
    file.close()
    assert (killed / f"{file.path.name}-wal").stat().st_size
    RunFile(killed, "new", overwrite=True).close()
    with closing(sqlite3.connect(killed / file.path.name)) as database:
        assert database.execute("SELECT count(*) FROM events").fetchone() == (0,)
