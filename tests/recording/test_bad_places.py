"""Folders that can't be recorded to, or vanish meanwhile, raise or warn and harm nothing else."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from distlab.errors import ArgumentTypeError, ArgumentValueError, RecordError
from distlab.events import Lost
from distlab.recording import RingRecorder, Run, record
from tests.patience import LIMIT_SECONDS, wait_until
from tests.recording import processes, samples


class Named(os.PathLike[Any]):
    """A path that is whatever it was given."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"Named({self.path!r})"


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("", ArgumentValueError, r"got ''.*record\(\"\.\"\) for the present folder"),
        (Named(""), ArgumentValueError, "got ''"),
        ("a\0b", ArgumentValueError, r"got 'a\\x00b'"),
        (b"runs", ArgumentTypeError, "got a bytes"),
        (Named(b"runs"), ArgumentTypeError, "got a Named"),
        (3, ArgumentTypeError, "got a int"),
        ("x" * 300, RecordError, "can't be created: File name too long"),
    ],
    ids=repr,
)
def test_what_names_no_folder_is_refused(
    path: Any,
    error: type[Exception],
    words: str,
    recorder: RingRecorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=words):
        record(path)
    assert list(tmp_path.iterdir()) == []


def test_a_recording_that_nobody_kept_is_named_by_its_line(
    recorder: RingRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = record("run")
    for folder in ("run", tmp_path / "run"):
        with pytest.raises(
            RecordError, match=r"process since test_bad_places\.py:\d+\. Close what"
        ):
            record(folder, overwrite=True)
    begun.close()
    record("run", overwrite=True).close()


def wait_for_loss(recorder: RingRecorder) -> Lost:
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        for event in recorder.ring.since(0).events:
            if isinstance(event, Lost):
                return event
        recorder.emit(samples.step(0))
        time.sleep(0.01)
    raise AssertionError("nobody said that events are lost")


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_folder_that_vanishes_meanwhile_is_told_of(
    how: str, recorder: RingRecorder, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        recording = record(folder)
        recorder.emit(samples.step(0))
        if how == "deleted":
            shutil.rmtree(folder)
        else:
            folder.rename(tmp_path / "elsewhere")
        lost = wait_for_loss(recorder)
        recording.log(1, loss=0.5)
        recording.close()
    assert "run was deleted, moved or replaced while a run was recorded to it" in lost.reason
    said = [str(one.message) for one in told if one.category is RuntimeWarning]
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


def test_a_new_run_in_a_deleted_folder_is_left_alone_by_the_old_one(
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


def test_a_program_whose_folder_was_deleted_ends_as_it_would(tmp_path: Path) -> None:
    program = """
import shutil, warnings
warnings.simplefilter("always")
recording = dl.record(sys.argv[1])
for number in range(100):
    step(number)
    if number == 50:
        shutil.rmtree(sys.argv[1])
recording.close()
print("trained")
"""
    status, out, err = processes.finish(program, str(tmp_path / "run"))
    assert (status, out) == (0, "trained\n")
    assert "was deleted, moved or replaced" in err


def test_a_name_that_the_locale_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsencode", lambda path: str(path).encode("ascii"))
    with pytest.raises(ArgumentValueError, match=r"p-.xfc'. Set PYTHONUTF8=1"):
        record(tmp_path / "p-ü", probe=False)
