"""Two processes that save into one folder: one is refused, and what is there is whole."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import distlab as dl
from distlab.errors import CheckpointError
from tests.own_process import ROOT

SAVES = """
import sys
import distlab as dl
from distlab.integrations.orbax import files

folder, how = sys.argv[1:]
checkpoint = dl.train.Checkpoint(x=dl.Variable(7.0))
write = files._write

def slowly(path, arrays, objects):
    write(path, arrays, objects)
    print("wrote", flush=True)
    sys.stdin.readline()

files._write = slowly
if how == "manager":
    dl.train.CheckpointManager(checkpoint, folder, max_to_keep=1).save(7)
else:
    checkpoint.write(folder + "/ckpt-7")
"""


@contextmanager
def saving(folder: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """Has another process save `ckpt-7`, which is written and not in its place yet."""
    with subprocess.Popen(
        [sys.executable, "-c", SAVES, str(folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "wrote\n"
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        process.communicate("go on\n", timeout=60)


def value(path: Any) -> float:
    return float(dl.train.load_variable(str(path), "x"))


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_manager_is_refused_where_another_process_is_saving(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    manager = dl.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1)
    threaded = dl.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1, enable_async=True)
    manager.save()
    with saving(tmp_path, "manager") as process:
        told = rf"Process {process.pid} on \S+ is saving ckpt to .* folder of its own"
        with pytest.raises(CheckpointError, match=told):
            manager.save()
        threaded.save()
        with pytest.raises(CheckpointError, match=told):
            threaded.sync()
        assert manager.checkpoints == [str(tmp_path / "ckpt-1")]
    assert process.returncode == 0
    assert listed(tmp_path) == ["ckpt-7"]
    assert value(tmp_path / "ckpt-7") == 7.0
    manager.save(8)
    assert listed(tmp_path) == ["ckpt-8"]
    assert value(tmp_path / "ckpt-8") == 1.0


def test_what_another_process_writes_by_name_is_left_alone(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    manager = dl.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=3)
    with saving(tmp_path, "write") as process:
        with pytest.raises(CheckpointError, match=f"Process {process.pid} .* is saving ckpt-7"):
            checkpoint.write(tmp_path / "ckpt-7")
        checkpoint.write(tmp_path / "best")
        manager.save(6)
    assert process.returncode == 0
    assert listed(tmp_path) == ["best", "ckpt-6", "ckpt-7"]
    assert value(tmp_path / "ckpt-7") == 7.0


@pytest.mark.parametrize(
    ("how", "next_one"), [("manager", "manager"), ("write", "manager"), ("write", "write")]
)
def test_a_killed_process_holds_no_folder(how: str, next_one: str, tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    with pytest.raises(KeyboardInterrupt), saving(tmp_path, how):
        raise KeyboardInterrupt
    if next_one == "manager":
        dl.train.CheckpointManager(checkpoint, tmp_path).save(7)
    else:
        checkpoint.write(tmp_path / "ckpt-7")
    assert listed(tmp_path) == ["ckpt-7"]
    assert value(tmp_path / "ckpt-7") == 1.0


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_saves_without_them(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", refused)
    manager = dl.train.CheckpointManager(
        dl.train.Checkpoint(x=dl.Variable(1.0)), tmp_path, max_to_keep=1
    )
    manager.save()
    manager.save()
    assert listed(tmp_path) == ["ckpt-2"]
