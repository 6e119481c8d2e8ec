"""Workers that do not see one another's folders record one run all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import distlab as dl
from distlab.events import Run, Step
from distlab.recording import participant
from distlab.runs.collector import Collector
from tests.recorded_by_workers import WORKERS, launch
from tests.recording import samples
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


def run_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("process-*.sqlite"))


def test_chief_writes_files_of_workers_that_lack_its_folder(tmp_path: Path) -> None:
    """Each worker has a folder and a machine's name of its own."""
    launch(tmp_path / "program.py", PROGRAM, str(tmp_path), devices=1)
    assert run_files(tmp_path / "machine-0") == ["process-0.sqlite", "process-1.sqlite"]
    assert run_files(tmp_path / "machine-1") == []
    with dl.Run.open(tmp_path / "machine-0" / "runs" / "first") as run:
        assert run.processes == tuple(range(WORKERS))
        assert not run.live
        assert run.summary()["status"] == "finished"
        taken = sorted(event.step for event in run.events("step") if isinstance(event, Step))
        assert taken == sorted([*range(STEPS)] * WORKERS)
        hosts = {event.host for event in run.events("run") if isinstance(event, Run)}
        assert hosts == {f"machine-{n}" for n in range(WORKERS)}
        assert not list(run.events("lost"))


def test_who_started_the_workers_writes_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    collector = Collector("127.0.0.1", tmp_path / "home")
    place = f"127.0.0.1 {collector.port} {collector.key}"
    monkeypatch.setenv("DISTLAB_COLLECTOR", place)

    def record(processes: Group) -> None:
        file, _ = participant.open_run_file(Path("run"), "x", overwrite=False, process=0)
        file.write([samples.step(processes.index)])
        file.close()

    try:
        together(monkeypatch, ["a", "b"], record)
    finally:
        collector.close()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    with dl.Run.open(tmp_path / "home" / "run") as run:
        assert run.processes == (0, 1)
        assert list(run.events()) == [samples.step(0), samples.step(1)]


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
