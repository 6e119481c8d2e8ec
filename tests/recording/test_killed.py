from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from distlab.events import Step
from distlab.recording import Run, record
from distlab.recording.recorder import RingRecorder
from tests.recording import processes

TOLD_NS = 250_000_000

PROGRAM = """
run = dl.record(sys.argv[1])
pause = float(sys.argv[2])
number = 0
while True:
    step(number)
    number += 1
    if number % 100 == 0:
        print(number, time.monotonic_ns(), flush=True)
        time.sleep(pause)
"""


def killed(folder: Path, pause: str, lines: int) -> list[tuple[int, int]]:
    """Runs the program until it wrote so many lines, kills it, and returns them."""
    process = processes.start(PROGRAM, str(folder), pause)
    assert process.stdout is not None
    told = []
    for _ in range(lines):
        number, time_ns = process.stdout.readline().split()
        told.append((int(number), int(time_ns)))
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    whole = [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]
    return told + [(int(number), int(time_ns)) for number, time_ns in whole]


@pytest.mark.parametrize("lines", [30, 57, 91])
def test_a_killed_run_lacks_only_its_last_moments(lines: int, tmp_path: Path) -> None:
    told = killed(tmp_path, "0.01", lines)
    with Run.open(tmp_path) as run:
        assert not run.live
        steps = [event.step for event in run.events("step") if isinstance(event, Step)]
        assert run.summary()["status"] == "killed"
    assert steps == list(range(len(steps)))
    end_ns = told[-1][1]
    must = [number for number, time_ns in told if time_ns < end_ns - TOLD_NS]
    assert len(steps) >= must[-1] > 0


def test_a_killed_run_can_be_replaced(tmp_path: Path, recorder: RingRecorder) -> None:
    killed(tmp_path, "0.01", 20)
    with record(tmp_path, overwrite=True):
        pass
    with Run.open(tmp_path) as run:
        assert run.summary()["status"] == "finished"
        assert run.summary()["steps"] == 0


def test_a_run_of_another_process_is_live_until_it_is_killed(tmp_path: Path) -> None:
    process = processes.start(PROGRAM, str(tmp_path), "0.01")
    assert process.stdout is not None
    process.stdout.readline()
    with Run.open(tmp_path) as run:
        assert run.live
        assert run.meta["process"] == process.pid
        assert run.meta["host"] == os.uname().nodename
        cursor = 0
        limit = time.monotonic() + 30
        while cursor < 1_000:
            assert time.monotonic() < limit
            cursor = run.since(cursor).cursor
        process.kill()
        process.communicate(timeout=60)
    with Run.open(tmp_path) as run:
        assert not run.live
