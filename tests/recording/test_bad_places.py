"""Folders that can't be recorded to, or vanish meanwhile, raise or warn and harm nothing else."""

from __future__ import annotations

import shutil
import time
import warnings
from functools import partial
from pathlib import Path

from distlab.events import Lost
from distlab.recording import RingRecorder, Run, record
from tests.patience import LIMIT_SECONDS, wait_until
from tests.recording import samples


def wait_for_loss(recorder: RingRecorder) -> Lost:
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        for event in recorder.ring.since(0).events:
            if isinstance(event, Lost):
                return event
        recorder.emit(samples.step(0))
        time.sleep(0.01)
    raise AssertionError("nobody said that events are lost")


def test_a_folder_that_vanishes_meanwhile_is_named(recorder: RingRecorder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recording = record(folder)
        recorder.emit(samples.step(0))
        shutil.rmtree(folder)
        lost = wait_for_loss(recorder)
        recording.log(1, loss=0.5)
        recording.close()
    assert "run was deleted, moved or replaced while a run was recorded to it" in lost.reason
    said = [str(one.message) for one in caught if one.category is RuntimeWarning]
    assert said[0].startswith(str(folder))
    assert not folder.exists()


def has_the_loss(folder: Path) -> bool:
    with Run.open(folder) as run:
        return run.summary()["metrics"] == {"loss": 0.5}


def test_a_folder_that_comes_back_has_everything(recorder: RingRecorder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        recording = record(folder)
        recorder.emit(samples.step(0))
        folder.rename(tmp_path / "elsewhere")
        wait_for_loss(recorder)
        recording.log(1, loss=0.5)
        (tmp_path / "elsewhere").rename(folder)
        wait_until(partial(has_the_loss, folder), "the loss in the file")
        recording.close()
    with Run.open(folder) as run:
        assert run.summary()["status"] == "finished"


def test_new_run_in_deleted_folder_is_left_alone_by_old_one(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        old = record(tmp_path / "run", name="old")
        shutil.rmtree(tmp_path / "run")
        new = record(tmp_path / "run", name="new")
        old.close()
        with Run.open(tmp_path / "run") as run:
            assert (run.summary()["name"], run.live) == ("new", True)
        new.log(1, loss=0.5)
        new.close()
    with Run.open(tmp_path / "run") as run:
        assert run.summary()["metrics"] == {"loss": 0.5}
        assert run.summary()["status"] == "finished"
