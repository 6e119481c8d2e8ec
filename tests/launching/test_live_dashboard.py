"""`distlab launch --dashboard` shows the run that its workers record, and stays."""

from __future__ import annotations

import signal
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


def opened(launched: Launched) -> bytes:
    """The page at the newest address that it printed."""
    url = next(line for line in reversed(launched.lines) if "http://" in line)
    with urllib.request.urlopen(url[url.index("http://") :], timeout=LIMIT_S) as answer:
        page: bytes = answer.read()
        return page


def test_the_dashboard_stays_until_ctrl_c(tmp_path: Path) -> None:
    program, runs, enough = tmp_path / "program.py", tmp_path / "runs", tmp_path / "enough"
    program.write_text(PROGRAM)
    with Launched(
        *("-n", "1", "--dashboard", str(runs), "--port", "0"),
        *(str(program), str(runs / "first"), str(enough)),
    ) as launched:
        recorded = f"[distlab launch] the run is recorded in {runs / 'first'}"
        launched.wait_for_line(recorded, "[distlab launch] dashboard: ")
        assert b"distlab" in opened(launched)
        enough.touch()
        launched.wait_for_line("[distlab launch] the program has ended; the dashboard stays ")
        assert b"distlab" in opened(launched)
        launched.process.send_signal(signal.SIGINT)
        assert launched.end() == 0


def test_a_program_that_records_nothing_keeps_no_dashboard(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit(3)")
    with Launched("-n", "1", "--dashboard", str(tmp_path / "runs"), str(program)) as launched:
        assert launched.end() == 3
    assert any("no dashboard: nothing was recorded in" in line for line in launched.lines)
