"""Checkpoints of other models, damaged ones, a full disk: a typed error, and nothing is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    CheckpointError,
    CheckpointMismatchError,
    DataLossError,
    NotFoundError,
)


def model(fill: float, **shapes: tuple[int, ...]) -> dict[str, dl.Variable]:
    return {name: dl.Variable(jnp.full(shape, fill)) for name, shape in shapes.items()}


def test_a_checkpoint_of_another_model_lists_names_and_shapes(tmp_path: Path) -> None:
    other = model(1.0, kernel=(2, 3), bias=(3,), gone=())
    path = dl.train.Checkpoint(model=other, step=dl.Variable(4)).save(tmp_path / "ckpt")
    mine = model(0.0, kernel=(2, 4), bias=(3,), new=())
    step = dl.Variable(0)
    with pytest.raises(CheckpointMismatchError) as caught:
        dl.train.Checkpoint(model=mine, step=step).restore(path)
    text = str(caught.value)
    assert "model/kernel is float32[2, 4] here, and float32[2, 3] in the checkpoint" in text
    assert "model/new is not in the checkpoint" in text
    assert "model/gone, float32[], is in the checkpoint alone" in text
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AssertionError)
    assert [float(v.numpy().sum()) for v in mine.values()] + [int(step)] == [0, 0, 0, 0]


def test_partial_restores_what_both_have_but_no_other_shape(tmp_path: Path) -> None:
    path = dl.train.Checkpoint(model=model(1.0, a=(2,), b=(2,))).save(tmp_path / "ckpt")
    mine = model(0.0, a=(2,), c=(2,))
    status = dl.train.Checkpoint(model=mine).restore(path, partial=True)
    assert (mine["a"].numpy().tolist(), mine["c"].numpy().tolist()) == ([1, 1], [0, 0])
    assert (status.missing, status.unused) == (("model/c",), ("model/b",))
    with pytest.raises(CheckpointMismatchError, match="does not have model/c"):
        status.assert_existing_objects_matched()
    with pytest.raises(CheckpointMismatchError, match=r"model/a is float32\[3\] here"):
        dl.train.Checkpoint(model=model(0.0, a=(3,))).restore(path, partial=True)
    with pytest.raises(CheckpointMismatchError, match=r"none of .* it has model/a, .* net/a"):
        dl.train.Checkpoint(net=model(0.0, a=(2,))).restore(path, partial=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Orbax
@pytest.mark.parametrize("how", ["flipped", "deleted"])
def test_damaged_numbers_or_entries_raise_and_restore_nothing(how: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0).normal(size=(100, 20)).astype("float32")
    path = Path(dl.train.Checkpoint(w=dl.Variable(rng)).save(tmp_path / "ckpt"))
    numbers = max(path.rglob("*"), key=lambda file: file.stat().st_size * file.is_file())
    for file in (numbers, path / "objects" / "metadata"):
        whole = file.read_bytes()
        middle = len(whole) // 2
        if how == "deleted":
            file.unlink()
        else:
            rest = bytes([whole[middle] ^ 0x11]) + whole[middle + 1 :]
            file.write_bytes(whole[:middle] + rest)
        w = dl.Variable(np.zeros_like(rng))
        with pytest.raises(DataLossError, match="or it is damaged"):
            dl.train.Checkpoint(w=w).restore(path)
        assert not w.numpy().any()
        file.write_bytes(whole)


def test_what_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    with pytest.raises(NotFoundError, match="There is no checkpoint"):
        checkpoint.restore(tmp_path / "missing")
    dl.train.CheckpointManager(checkpoint, tmp_path / "several", max_to_keep=1).save()
    with pytest.raises(NotFoundError, match=r"no checkpoint .*several\. Pass dl\.train\.latest"):
        checkpoint.restore(tmp_path / "several")
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        with pytest.raises(DataLossError, match="is no checkpoint, or it is damaged"):
            checkpoint.restore(tmp_path / name)
        with pytest.raises(CheckpointError, match="exists and is no checkpoint"):
            checkpoint.write(tmp_path / name)
    assert (tmp_path / "file").read_text() == "text"


FULL = """
import resource, signal, sys
import distlab as dl
import numpy as np
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
values = dl.Variable(np.zeros(100_000, "float32"))
checkpoint = dl.train.Checkpoint(x=values)
manager = dl.train.CheckpointManager(checkpoint, sys.argv[1], 1, enable_async=True)
manager.save()
manager.sync()
values.assign(np.random.default_rng(0).normal(size=100_000).astype("float32"))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    manager.save()
    manager.sync()
except dl.errors.CheckpointError as error:
    print("refused:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(manager.checkpoints == [sys.argv[1] + "/ckpt-1"])
manager.save(9)
manager.sync()
print(manager.checkpoints == [sys.argv[1] + "/ckpt-9"])
"""


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    refused, kept, later = done.stdout.splitlines()
    assert "could not be written" in refused
    assert (kept, later) == ("True", "True")
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["ckpt-9"]


def test_leftovers_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    manager = dl.train.CheckpointManager(checkpoint, tmp_path)
    path = Path(str(manager.save()))
    unfinished = tmp_path / "ckpt-2.orbax-checkpoint-tmp"
    shutil.copytree(path, unfinished)
    assert manager.checkpoints == [str(path)]
    dl.train.CheckpointManager(checkpoint, tmp_path).save()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ckpt-1", "ckpt-2"]


def test_a_process_killed_as_it_replaces_a_checkpoint_leaves_the_new(tmp_path: Path) -> None:
    path = Path(dl.train.Checkpoint(x=1).write(tmp_path / "last"))
    path.rename(tmp_path / "last.new")
    checkpoint = dl.train.Checkpoint(x=0)
    checkpoint.read(path)
    assert checkpoint.x == 1


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("distlab.integrations.orbax.files.VERSION", 2)
    path = dl.train.Checkpoint(x=1).write(tmp_path / "new")
    monkeypatch.undo()
    with pytest.raises(DataLossError, match="newer version of distlab"):
        dl.train.Checkpoint(x=0).read(path)
