from __future__ import annotations

import os
import signal
from pathlib import Path

from distlab.events import Step
from distlab.recording import Run, record
from distlab.recording.recorder import RingRecorder
from tests.patience import wait_until
from tests.recording import processes

PROGRAM = """
run = dl.record(sys.argv[1])
pause = float(sys.argv[2])
number = 0
while True:
    step(number)
    number += 1
    if number % 100 == 0:
        print(number, flush=True)
        time.sleep(pause)
"""


def killed(folder: Path, pause: str, lines: int) -> int:
    """Runs the program, kills it when the steps of so many lines can be read; returns those."""
    process = processes.start(PROGRAM, str(folder), pause)
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(lines)]
    with Run.open(folder) as run:
        assert run.live
        assert run.meta["process"] == process.pid
        assert run.meta["host"] == os.uname().nodename
        wait_until(lambda: run.summary()["steps"] >= told[-1], "the last steps in the file")
        seen = run.summary()["steps"]
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    return seen


def test_killed_run_has_all_that_was_read_and_can_be_replaced(
    tmp_path: Path, recorder: RingRecorder
) -> None:
    seen = killed(tmp_path, "0.01", lines=20)
    with Run.open(tmp_path) as run:
        assert not run.live
        steps = [event.step for event in run.events("step") if isinstance(event, Step)]
        assert run.summary()["status"] == "killed"
    assert steps == list(range(len(steps)))
    assert len(steps) >= seen >= 2_000
    record(tmp_path, overwrite=True).close()
    with Run.open(tmp_path) as run:
        assert (run.summary()["status"], run.summary()["steps"]) == ("finished", 0)
