"""`distlab launch --dashboard` shows the run that its workers record, while they do."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from tests.launching.real_processes import LIMIT_S, Launched

PROGRAM = """
import sys, time
from pathlib import Path
from distlab.runs.run_file import RunFile

file = RunFile(Path(sys.argv[1]), "run")
while not Path(sys.argv[2]).exists():
    time.sleep(0.05)
file.close()
"""


def test_the_dashboard_lives_as_long_as_the_workers(tmp_path: Path) -> None:
    program, runs, enough = tmp_path / "program.py", tmp_path / "runs", tmp_path / "enough"
    program.write_text(PROGRAM)
    launched = Launched(
        *("-n", "1", "--dashboard", str(runs), "--port", "0"),
        *(str(program), str(runs / "first"), str(enough)),
    )
    try:
        launched.wait_for_line("[distlab launch] dashboard: ")
        line = next(one for one in launched.lines if "dashboard: " in one)
        with urllib.request.urlopen(line.rpartition("dashboard: ")[2], timeout=LIMIT_S) as answer:
            assert b"distlab" in answer.read()
        enough.touch()
        assert launched.end() == 0
    finally:
        launched.kill()
