"""Workers that do not see one another's folders record one run all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import distlab as dl
from distlab.events import Run, Step
from distlab.recording import participant
from distlab.runs.collector import Collector
from tests.recorded_by_workers import WORKERS, launch
from tests.recording.test_several_workers import Group, together

STEPS = 20

PROGRAM = f"""
import json
import os
import socket
import sys
from pathlib import Path

task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
socket.gethostname = lambda: f"machine-{{task}}"
own = Path(sys.argv[1]) / f"machine-{{task}}"
own.mkdir()
os.chdir(own)
os.environ.update(arg.split("=", 1) for arg in sys.argv[2:])

import jax.numpy as jnp

import distlab as dl

strategy = dl.MultiWorkerMirroredStrategy()


def step(number):
    return dl.get_replica_context().all_reduce("SUM", jnp.float32(number))


with dl.record("runs/first") as recording:
    for number in range({STEPS}):
        total = strategy.run(step, args=(number,))
        recording.log(total=strategy.experimental_local_results(total)[0])
"""


def record(folder: Path, *environment: str) -> None:
    """Runs the program on workers that have a folder and a machine's name of their own each."""
    launch(folder / "program.py", PROGRAM, str(folder), *environment, devices=1)


def check(folder: Path) -> None:
    """Its run has every step of every worker, each once, and the workers' own facts."""
    with dl.Run.open(folder) as run:
        assert run.processes == tuple(range(WORKERS))
        assert not run.live
        assert run.summary()["status"] == "finished"
        taken = sorted(event.step for event in run.events("step") if isinstance(event, Step))
        assert taken == sorted([*range(STEPS)] * WORKERS)
        hosts = {event.host for event in run.events("run") if isinstance(event, Run)}
        assert hosts == {f"machine-{n}" for n in range(WORKERS)}
        assert not list(run.events("lost"))


def run_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("process-*.sqlite"))


def test_chief_writes_files_of_workers_that_lack_its_folder(tmp_path: Path) -> None:
    record(tmp_path)
    assert run_files(tmp_path / "machine-0") == ["process-0.sqlite", "process-1.sqlite"]
    assert run_files(tmp_path / "machine-1") == []
    check(tmp_path / "machine-0" / "runs" / "first")


def test_who_started_the_workers_writes_their_files(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    collector = Collector("127.0.0.1", home)
    try:
        record(tmp_path, f"DISTLAB_COLLECTOR=127.0.0.1 {collector.port} {collector.key}")
    finally:
        collector.close()
    assert run_files(home) == ["process-0.sqlite", "process-1.sqlite"]
    assert run_files(tmp_path / "machine-0") == run_files(tmp_path / "machine-1") == []
    check(home / "runs" / "first")


def test_workers_of_one_machine_find_the_folder_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were started in different folders, and name it by a relative path."""
    names = {0: tmp_path / "runs" / "x", 1: tmp_path / "elsewhere" / "x"}
    monkeypatch.setattr(participant, "_meeting", lambda _: "record runs/x")

    def begin(processes: Group) -> Path:
        file, _ = participant.open_run_file(names[processes.index], "x", overwrite=False, process=0)
        processes.exchange("begun", "")  # the others know the folder by a file that is open
        file.close()
        return file.path

    first, second = together(monkeypatch, ["a", "a"], begin)
    assert {first, second} == {names[0] / f"process-{n}.sqlite" for n in range(2)}
