"""CheckpointManager: numbers, intervals, what is kept, and threads that write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointMismatchError,
    NotFoundError,
)


def names(manager: dl.train.CheckpointManager) -> list[str]:
    return [Path(path).name for path in manager.checkpoints]


def managed(folder: Path, **options: Any) -> tuple[dl.Variable, dl.train.CheckpointManager]:
    step = dl.Variable(0)
    checkpoint = dl.train.Checkpoint(step=step)
    return step, dl.train.CheckpointManager(checkpoint, folder, **options)


def test_the_newest_are_kept_and_a_new_manager_goes_on_counting(tmp_path: Path) -> None:
    assert dl.train.latest_checkpoint(tmp_path) is None
    assert dl.train.latest_checkpoint(tmp_path / "new") is None
    _, manager = managed(tmp_path / "new" / "folder", max_to_keep=2)
    assert manager.restore_or_initialize() is None
    paths = [manager.save() for _ in range(3)]
    assert names(manager) == ["ckpt-2", "ckpt-3"]
    assert manager.latest_checkpoint == paths[-1]
    assert dl.train.latest_checkpoint(manager.directory) == paths[-1]
    _, again = managed(tmp_path / "new" / "folder", max_to_keep=2)
    assert again.restore_or_initialize() == paths[-1]
    assert Path(str(again.save())).name == "ckpt-4"
    assert names(again) == ["ckpt-3", "ckpt-4"]


def test_the_newest_is_the_last_one_saved_whatever_its_number(tmp_path: Path) -> None:
    step, manager = managed(tmp_path)
    for number in (10, 3):
        step.assign(number)
        manager.save(number)
    assert names(manager) == ["ckpt-10", "ckpt-3"]
    step.assign(0)
    assert str(manager.restore_latest()).endswith("ckpt-3")
    assert int(step) == 3


def test_saving_a_number_again_replaces_the_checkpoint(tmp_path: Path) -> None:
    step, manager = managed(tmp_path, max_to_keep=None)
    for number in (1, 2):
        step.assign(number)
        path = manager.save(np.int64(5))
    assert names(manager) == ["ckpt-5"]
    assert dl.train.load_variable(str(path), "step") == 2


def test_multiples_and_hourly_checkpoints_are_kept(tmp_path: Path) -> None:
    _, manager = managed(tmp_path / "a", max_to_keep=1, keep_every=3)
    for _ in range(7):
        manager.save()
    assert names(manager) == ["ckpt-3", "ckpt-6", "ckpt-7"]

    _, manager = managed(tmp_path / "b", max_to_keep=None)
    for _ in range(5):
        manager.save()
    hour_ns = 3600 * 10**9
    for number, path in enumerate(manager.checkpoints):  # as if one had been saved every 30 minutes
        file = Path(path) / "_CHECKPOINT_METADATA"
        held = json.loads(file.read_text())
        held["commit_timestamp_nsecs"] = hour_ns * number // 2
        file.write_text(json.dumps(held))
    _, manager = managed(tmp_path / "b", max_to_keep=2, keep_checkpoint_every_n_hours=1)
    manager.save(6)
    assert names(manager) == ["ckpt-1", "ckpt-3", "ckpt-5", "ckpt-6"]


def test_the_interval_counts_steps_from_the_last_checkpoint(tmp_path: Path) -> None:
    step, manager = managed(tmp_path, max_to_keep=9)
    manager = dl.train.CheckpointManager(
        manager.checkpoint, tmp_path, max_to_keep=9, step_counter=step, checkpoint_interval=3
    )
    saved = []
    for number in range(1, 9):
        step.assign(number)
        if manager.save() is not None:
            saved.append(number)
    assert saved == [1, 4, 7]
    assert manager.save(check_interval=False) is not None
    later = dl.train.CheckpointManager(
        manager.checkpoint, tmp_path, 9, step_counter=lambda: int(step), checkpoint_interval=3
    )
    later.restore_or_initialize()
    step.assign(10)
    assert later.save() is None


def test_restore_or_initialize_restores_common_names_if_asked(
    tmp_path: Path,
) -> None:
    dl.train.CheckpointManager(
        dl.train.Checkpoint(model={"a": dl.Variable(1.0), "b": dl.Variable(1.0)}), tmp_path
    ).save()
    own, called = dl.Variable(0.0), list[int]()
    manager = dl.train.CheckpointManager(
        dl.train.Checkpoint(model={"a": own}), tmp_path, init_fn=lambda: called.append(1)
    )
    with pytest.raises(CheckpointMismatchError, match="partial=True restores the names"):
        manager.restore_or_initialize()
    assert manager.restore_or_initialize(partial=True) == manager.latest_checkpoint
    assert (float(own), called) == (1.0, [])
    empty: Any = dl.train.CheckpointManager(
        manager.checkpoint, tmp_path / "empty", init_fn=lambda: called.append(1)
    )
    assert empty.restore_or_initialize(partial=True) is None
    assert called == [1]


def test_a_folders_variables_are_its_latest_checkpoints(tmp_path: Path) -> None:
    step, manager = managed(tmp_path)
    for number in (7, 8):
        step.assign(number)
        path = manager.save(20 - number)
    assert path == str(tmp_path / "ckpt-12")
    for place in (tmp_path, manager.directory, path):
        assert dl.train.list_variables(place) == [("step", [])]
        assert dl.train.load_variable(place, "step") == 8
    assert dl.train.load_variable(tmp_path / "ckpt-13", "step") == 7


def test_a_folder_without_a_checkpoint_has_no_variables(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for read in (dl.train.list_variables, lambda place: dl.train.load_variable(place, "step")):
        with pytest.raises(ArgumentValueError, match=r"has no checkpoint .* Save one there first"):
            read(tmp_path)
        with pytest.raises(NotFoundError, match="There is no checkpoint"):
            read(tmp_path / "missing")
    manager = managed(tmp_path)[1]
    manager.save()
    with pytest.raises(ArgumentValueError, match=r"ckpt-1 has no array 'x'\. It has step\. Pass"):
        dl.train.load_variable(tmp_path, "x")


def test_checkpoints_of_orbax_itself_are_left_alone(tmp_path: Path) -> None:
    ocp.PyTreeCheckpointer().save(tmp_path / "ckpt-9", {"x": np.ones(2)})
    _, manager = managed(tmp_path, max_to_keep=1)
    assert manager.latest_checkpoint is None
    for _ in range(2):
        manager.save()
    assert names(manager) == ["ckpt-2"]
    assert (tmp_path / "ckpt-9").exists()


def test_a_checkpoint_that_a_thread_still_writes_is_the_newest(tmp_path: Path) -> None:
    big = dl.Variable(jnp.zeros(2_000_000))
    begun: list[str] = []
    manager = dl.train.CheckpointManager(
        dl.train.Checkpoint(big=big), tmp_path, 1, enable_async=True,
        init_fn=lambda: begun.append("anew"),
    )  # fmt: skip
    for number in (1, 2):
        big.assign(jnp.full(2_000_000, number))
        path = manager.save()
        assert manager.latest_checkpoint == path
        assert manager.checkpoints[-1] == path
    big.assign(jnp.full(2_000_000, 3))
    last = manager.save()
    big.assign(jnp.zeros(2_000_000))
    assert manager.restore_or_initialize() == last
    assert (float(big.value()[-1]), begun) == (3, [])


def test_what_a_thread_writes_is_what_was_at_the_call(tmp_path: Path) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        big = dl.Variable(jnp.zeros(100_000))
    manager = dl.train.CheckpointManager(
        dl.train.Checkpoint(big=big), tmp_path, max_to_keep=2, enable_async=True
    )
    for number in range(4):
        strategy.run(lambda: big.assign_add(jnp.ones(100_000)))
        manager.save(number)
        strategy.run(lambda: big.assign_add(jnp.full(100_000, 0.0)))
    manager.sync()
    assert names(manager) == ["ckpt-2", "ckpt-3"]
    for path, value in zip(manager.checkpoints, (3.0, 4.0), strict=True):
        assert np.unique(dl.train.load_variable(path, "big")).tolist() == [value]


ENDS = """
import sys
import distlab as dl
import jax.numpy as jnp
checkpoint = dl.train.Checkpoint(x=dl.Variable(jnp.ones(1000)))
checkpoint.save(sys.argv[1], dl.train.CheckpointOptions(enable_async=True))
"""


def test_a_process_that_ends_finishes_its_checkpoint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path / "ckpt")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    path = dl.train.latest_checkpoint(tmp_path)
    assert path == str(tmp_path / "ckpt-1")
    assert dl.train.load_variable(path, "x").sum() == 1000


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"max_to_keep": 0}, ArgumentValueError, "max_to_keep must be a positive whole number"),
        ({"checkpoint_interval": 3}, ArgumentValueError, "needs step_counter"),
        ({"checkpoint": {}}, ArgumentTypeError, "needs a dl.train.Checkpoint"),
    ],
)
def test_wrong_arguments_are_refused(
    options: dict[str, Any], error: type[Exception], says: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"checkpoint": dl.train.Checkpoint(), "directory": tmp_path}
    with pytest.raises(error, match=says):
        dl.train.CheckpointManager(**given | options)
