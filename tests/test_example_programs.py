"""The programs in examples/ run without a warning and learn."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import distlab as dl
from tests.launching.real_processes import Launched

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def _printed(name: str, *options: str) -> str:
    program = ROOT / "examples" / f"{name}.py"
    keras = "ignore:__array__ implementation:DeprecationWarning"  # its variables, with NumPy 2
    command = [sys.executable, "-W", "error", "-W", keras, str(program), *options]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=240, check=False, cwd=folder
        )
        assert (done.returncode, done.stderr) == (0, "")
        with dl.Run.open(f"{folder}/runs/{name}") as run:
            assert run.summary()["status"] == "finished"
    return done.stdout


def _numbers(after: str, printed: str) -> list[float]:
    return [float(number) for number in re.findall(rf"{after} ([\d.]+)", printed)]


def test_the_custom_training_loop_learns_digits(tmp_path: Path) -> None:
    printed = _printed("custom_training_loop", "--epochs", "4", "--logs", str(tmp_path))
    losses = _numbers("loss", printed)
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)
    assert _numbers("accuracy", printed)[-1] > 80
    everything = EventAccumulator(str(tmp_path)).Reload()
    logged = [round(100 * event.value, 1) for event in everything.Scalars("test_accuracy")]
    assert logged == _numbers("accuracy", printed)
    assert everything.Scalars("train_accuracy")[-1].value > 0.8


def test_the_host_training_loop_goes_on_where_it_was() -> None:
    printed = _printed("host_training_loop", "--loops", "4", "--steps-per-loop", "20")
    assert _numbers("step", printed) == [20, 40, 60, 80]
    losses = _numbers("loss", printed)
    assert losses[-1] < losses[0] / 3


def test_the_optimizer_through_merge_call_fits_a_regression() -> None:
    losses = _numbers("loss", _printed("optimizer_through_merge_call", "--epochs", "4"))
    assert losses[-1] < 0.52  # least squares leave 0.48


def test_saved_training_resumes_on_fewer_replicas_and_is_served(tmp_path: Path) -> None:
    printed = _printed("save_and_load", "--folder", str(tmp_path))
    assert "8 replicas, from the beginning: steps 0 to 50, 3141 examples" in printed
    assert "3 replicas, from ckpt-1: steps 50 to 116, 7188 examples" in printed  # 4 x 1797
    assert _numbers("served on 2 replicas:", printed)[0] > 85


def test_keras_fit_learns_and_its_model_loads_anywhere() -> None:
    printed = _printed("keras_fit", "--epochs", "2")
    assert "Number of devices: 8" in printed
    losses = _numbers("loss", printed)
    assert losses == sorted(losses, reverse=True)
    assert _numbers("without a strategy: accuracy", printed)[0] > 80
    alone, replicated = (line.split("accuracy ")[1] for line in printed.splitlines()[-2:])
    assert alone == replicated


@functools.cache
def _alone() -> str:
    return _printed("two_workers", "--epochs", "3")


def test_two_workers_learn_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    alone = _alone()
    losses = _numbers("loss", alone)
    assert losses == sorted(losses, reverse=True)
    assert "step 42: " in alone
    example = str(ROOT / "examples" / "two_workers.py")
    with Launched("--devices", "2", example, "--epochs", "3") as run:
        assert run.end() == 0
    for worker in range(2):
        lines = [line for line in run.lines if line.startswith(f"[worker-{worker}] step ")]
        assert _numbers("loss", "\n".join(lines)) == losses
        assert lines[-1].endswith(", 4 replicas")


KILLED_ONCE = """
import os, signal, sys
import distlab as dl
import two_workers

step = dl.BackupAndRestore.step
steps = []

def step_or_die(backup):
    step(backup)
    steps.append(1)
    first = os.environ["DISTLAB_GENERATION"] == "0"
    if first and len(steps) == 20 and '"index": 1' in os.environ["TF_CONFIG"]:
        os.kill(os.getpid(), signal.SIGKILL)

dl.BackupAndRestore.step = step_or_die
two_workers.main(2, sys.argv[1])
"""


def test_a_killed_worker_is_restarted_and_training_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "examples"), *sys.path]))
    program = tmp_path / "killed_once.py"
    program.write_text(KILLED_ONCE)
    backup = str(tmp_path / "backup")
    with Launched("--max-restarts", "1", "--grace", "60", str(program), backup) as run:
        assert run.end() == 0
    assert "[worker-0] goes on after step 20" in run.lines
    assert "[worker-1] goes on after step 20" in run.lines
    resumed = _numbers("loss", "\n".join(line for line in run.lines if "worker-0" in line))
    assert resumed == _numbers("loss", _alone())[:2]


def test_asynchronous_workers_learn_with_parameter_servers() -> None:
    printed = _printed("parameter_servers", "--epochs", "2")
    assert "table: (4, 64) on server 0\ntable: (3, 64) on server 1\n" in printed
    losses = _numbers("loss", printed)
    assert len(losses) == 2
    assert losses[-1] < losses[0] / 1.5
    assert _numbers("test accuracy", printed)[-1] > 0.9


def test_every_program_is_tested_and_has_its_line_in_the_docs() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    tests = Path(__file__).read_text()
    for path in EXAMPLES:
        assert f"examples/{path.name}" in page
        assert f'"{path.stem}"' in tests
