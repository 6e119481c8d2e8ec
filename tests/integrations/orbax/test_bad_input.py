"""Checkpoints of other models, damaged ones, a full disk: a typed error, and nothing is lost."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentValueError,
    CheckpointError,
    CheckpointMismatchError,
    DataLossError,
    NotFoundError,
)
from distlab.integrations.orbax import files


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


def test_partial_with_no_name_in_common_is_refused(tmp_path: Path) -> None:
    path = dl.train.Checkpoint(model=model(1.0, a=(2,))).save(tmp_path / "ckpt")
    mine = model(0.0, a=(2,))
    said = r"none of .* it has model/a, .* net/a. Nothing was restored"
    with pytest.raises(CheckpointMismatchError, match=said):
        dl.train.Checkpoint(net=mine).restore(path, partial=True)
    assert mine["a"].numpy().tolist() == [0, 0]


def test_partial_is_advised_where_it_helps_and_names_alone_differ(tmp_path: Path) -> None:
    path = dl.train.Checkpoint(model=model(1.0, a=(2,), b=(2,))).save(tmp_path / "ckpt")

    def refusal(*, partial: bool = False, **shapes: tuple[int, ...]) -> str:
        with pytest.raises(CheckpointMismatchError) as caught:
            dl.train.Checkpoint(model=model(0.0, **shapes)).restore(path, partial=partial)
        return str(caught.value).partition("Nothing was restored. ")[2]

    names = "Make the objects as they were when it was saved, and build a Keras optimizer first"
    assert refusal(a=(2,)) == f"{names}; partial=True restores the names that both have."
    left_out = "or leave out of the Checkpoint what does not fit (model/a) and pass partial=True."
    assert refusal(a=(3,), c=()) == f"{names}, {left_out}"
    for partial in (False, True):
        assert refusal(partial=partial, a=(3,), b=(2,)) == (
            f"Make the objects as they were when it was saved, {left_out}"
        )
    rest = model(0.0, b=(2,))
    dl.train.Checkpoint(model=rest).restore(path, partial=True)
    assert rest["b"].numpy().tolist() == [1, 1]


ON_READ = dl.VariableSynchronization.ON_READ


@pytest.mark.parametrize("nested", [False, True])
def test_copies_of_other_replicas_are_left_out_or_made_as_one_value_as_advised(
    nested: bool, tmp_path: Path
) -> None:
    def variables(replicas: int, aggregation: dl.VariableAggregation) -> dict[str, dl.Variable]:
        with dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]).scope():
            own = dl.Variable(2.0, synchronization=ON_READ, aggregation=aggregation)
            return {"w": dl.Variable(1.0), "own": own}

    def manager(folder: str, parts: dict[str, dl.Variable]) -> dl.train.CheckpointManager:
        checkpoint = dl.train.Checkpoint(**({"model": parts} if nested else parts))
        return dl.train.CheckpointManager(checkpoint, tmp_path / folder)

    none, mean = dl.VariableAggregation.NONE, dl.VariableAggregation.MEAN
    manager("none", variables(4, none)).save()
    name = "model/own" if nested else "own"
    other = manager("none", variables(2, none))
    restores: tuple[Callable[..., object], ...] = (
        functools.partial(other.checkpoint.restore, other.latest_checkpoint),
        other.restore_latest,
        other.restore_or_initialize,
    )
    for restore, partial in product(restores, (False, True)):
        with pytest.raises(CheckpointMismatchError) as caught:
            restore(partial=partial)
        assert str(caught.value).endswith(
            f"{name} has a value of its own on each replica, of which 4 were saved and there are 2 "
            "now. Nothing was restored. Make the objects as they were when it was saved, or leave "
            f"out of the Checkpoint what does not fit ({name})"
            f"{' and pass partial=True' if nested else ''}. A variable with aggregation NONE needs "
            "the 4 replicas it was saved with; one that is made with SUM or MEAN is saved as one "
            "value, which any number of replicas restores."
        )
    fewer = variables(2, none)
    fewer["w"].assign(0.0)
    assert manager("none", {"w": fewer["w"]}).restore_or_initialize(partial=nested) is not None
    assert float(fewer["w"]) == 1.0
    manager("mean", variables(4, mean)).save()
    averaged = variables(2, mean)
    averaged["own"].assign(0.0)
    manager("mean", averaged).restore_or_initialize()
    assert float(averaged["own"].numpy()) == 2.0


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("how", ["cut", "flipped", "deleted", "emptied"])
def test_a_damaged_file_is_an_error_or_harms_nothing(how: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0).normal(size=(100, 20)).astype("float32")
    values = {"w": dl.Variable(rng), "b": dl.Variable([1.5, 2.5])}
    dataset = iter(dl.data.Dataset.range(9))
    path = Path(dl.train.Checkpoint(v=values, input=dataset).save(tmp_path / "ckpt"))
    good, raised = tmp_path / "good", 0
    shutil.copytree(path, good)
    for name in _files(path):
        whole = (path / name).read_bytes()
        middle = len(whole) // 2
        if how == "deleted":
            (path / name).unlink()
        elif how == "flipped":
            flipped = bytes([whole[middle] ^ 0x11])
            (path / name).write_bytes(whole[:middle] + flipped + whole[middle + 1 :])
        else:
            (path / name).write_bytes(whole[: middle if how == "cut" else 0])
        mine = {"w": dl.Variable(np.zeros_like(rng)), "b": dl.Variable([0.0, 0.0])}
        try:
            dl.train.Checkpoint(v=mine, input=iter(dl.data.Dataset.range(9))).restore(path)
        except DataLossError:
            raised += 1
            assert not mine["w"].numpy().any()
        else:
            assert (mine["w"].numpy() == rng).all(), name
            assert mine["b"].numpy().tolist() == [1.5, 2.5]
        shutil.rmtree(path)
        shutil.copytree(good, path)
    assert raised >= 10


def test_what_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    with pytest.raises(NotFoundError, match="There is no checkpoint"):
        checkpoint.restore(tmp_path / "missing")
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        with pytest.raises(DataLossError, match="is no checkpoint, or it is damaged"):
            checkpoint.restore(tmp_path / name)
        with pytest.raises(CheckpointError, match="exists and is no checkpoint"):
            checkpoint.write(tmp_path / name)
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/", "A checkpoint's path ends in its name, got '/'"),
        ("x" * 300, "can look for, got 'xxx.*File name too long.*Use another name"),
        ("~nobody-of-this-name/ckpt", "can look for, got '~nobody.*home directory.*Use another"),
    ],
)
def test_a_path_that_no_checkpoint_can_have_is_refused(path: str, rule: str) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    for verb in (checkpoint.save, checkpoint.write, checkpoint.restore):
        with pytest.raises(ArgumentValueError, match=rule):
            verb(path)
    assert checkpoint.save_counter == 0


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    for use in (
        lambda: dl.train.CheckpointManager(checkpoint, file),
        lambda: dl.train.latest_checkpoint(file),
        lambda: checkpoint.save(file / "ckpt"),
    ):
        with pytest.raises(CheckpointError, match="file"):
            use()
    assert checkpoint.save_counter == 0
    assert file.read_text() == "text"


FULL = """
import resource, signal, sys
import distlab as dl
import numpy as np
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
values = dl.Variable(np.zeros(100_000, "float32"))
checkpoint = dl.train.Checkpoint(x=values)
in_background = sys.argv[2] == "async"
manager = dl.train.CheckpointManager(checkpoint, sys.argv[1], 1, enable_async=in_background)
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


@pytest.mark.parametrize("when", ["at once", "async"])
def test_a_full_disk_keeps_the_last_good_checkpoint(when: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "c"), when],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    refused, kept, later = done.stdout.splitlines()
    assert "could not be written" in refused
    assert (kept, later) == ("True", "True")
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["ckpt-9"]


def test_leftovers_of_a_killed_process_are_no_checkpoints_and_are_removed(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    manager = dl.train.CheckpointManager(checkpoint, tmp_path)
    path = Path(str(manager.save()))
    unfinished = tmp_path / "ckpt-2.new.orbax-checkpoint-tmp"
    shutil.copytree(path, unfinished)
    others = tmp_path / "mine.orbax-checkpoint-tmp"
    others.mkdir()
    assert manager.latest_checkpoint == str(path)
    assert unfinished.exists()  # a reader's manager must not remove what another process writes
    manager.save()
    assert not unfinished.exists()
    assert others.exists()


def test_a_save_after_an_interrupted_one_is_whole_whatever_still_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = dl.Variable(1.0)
    saver = dl.train.CheckpointManager(dl.train.Checkpoint(v=variable), tmp_path, max_to_keep=3)
    write = files._write
    stop = threading.Event()

    def of_orbax(folder: Path) -> None:
        while not stop.wait(0.001):
            folder.mkdir(exist_ok=True)
            (folder / "left").write_text("of the interrupted save")

    threads: list[threading.Thread] = []

    def interrupted(path: Path, arrays: Any, objects: Any) -> None:
        threads.append(threading.Thread(target=of_orbax, args=(path,)))
        threads[0].start()
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_write", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            saver.save()
        monkeypatch.setattr(files, "_write", write)
        variable.assign(2.0)
        saved = Path(str(saver.save()))
    finally:
        stop.set()
        threads[0].join()
    assert not [*saved.rglob("left")]
    variable.assign(0.0)
    saver.checkpoint.restore(saver.latest_checkpoint)
    assert float(variable) == 2.0
    saver.save()
    again = dl.train.CheckpointManager(dl.train.Checkpoint(v=variable), tmp_path, max_to_keep=3)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")] == []
    assert len(again.checkpoints) == 2


@pytest.mark.parametrize("how", ["manager", "write"])
def test_a_save_after_a_failed_one_is_whole_and_removes_what_was_written_on(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = dl.train.Checkpoint(v=dl.Variable(1.0))
    manager = dl.train.CheckpointManager(checkpoint, tmp_path)
    save: Callable[[], Any] = {
        "manager": lambda: manager.save(1),
        "write": lambda: checkpoint.write(tmp_path / "ckpt-1"),
    }[how]
    write = files._write
    failed: list[Path] = []

    def of_orbax() -> None:
        for folder in (failed[0], failed[0].with_name(f"{failed[0].name}.orbax-checkpoint-tmp")):
            folder.mkdir(exist_ok=True)
            (folder / "left").write_text("of the failed save")

    def full(path: Path, arrays: Any, objects: Any) -> None:
        failed.append(path)
        raise OSError("No space left on device")

    def written_beside(path: Path, arrays: Any, objects: Any) -> None:
        write(path, arrays, objects)
        of_orbax()

    monkeypatch.setattr(files, "_write", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save()
    of_orbax()
    monkeypatch.setattr(files, "_write", write)
    save()
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-1"]
    monkeypatch.setattr(files, "_write", written_beside)
    save()
    assert not [*(tmp_path / "ckpt-1").rglob("left")]


def test_a_removal_that_was_interrupted_leaves_no_checkpoint(tmp_path: Path) -> None:
    x = dl.Variable(1.0)
    manager = dl.train.CheckpointManager(dl.train.Checkpoint(x=x), tmp_path, max_to_keep=1)
    path = Path(str(manager.save()))
    half = tmp_path / "ckpt-0.removed"
    shutil.copytree(path, half)
    (half / "_CHECKPOINT_METADATA").unlink()
    assert manager.checkpoints == [str(path)]
    manager.save()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ckpt-2"]


def test_a_replacement_that_was_interrupted_leaves_the_old_one_readable(tmp_path: Path) -> None:
    path = tmp_path / "last"
    dl.train.Checkpoint(x=dl.Variable(1.0)).write(path)
    path.rename(tmp_path / "last.replaced")
    x = dl.Variable(0.0)
    dl.train.Checkpoint(x=x).read(path)
    assert float(x) == 1.0
    dl.train.Checkpoint(x=dl.Variable(2.0)).write(path)
    dl.train.Checkpoint(x=x).read(path)
    assert float(x) == 2.0


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("distlab.integrations.orbax.files.VERSION", 2)
    path = dl.train.Checkpoint(x=1).write(tmp_path / "new")
    monkeypatch.undo()
    with pytest.raises(DataLossError, match="newer version of distlab"):
        dl.train.Checkpoint(x=0).read(path)
