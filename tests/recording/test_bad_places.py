"""Folders that can't be recorded to, or vanish meanwhile: said in words, nothing else harmed."""

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
from tests import own_process
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
        ("\udcff", ArgumentValueError, r"in UTF-8, got '\\udcff'"),
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


def test_links_that_lead_to_one_another_are_refused(recorder: RingRecorder, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(RecordError, match="can't be created"):
        record(tmp_path / "a" / "run")


def test_something_else_in_place_of_the_file_is_refused(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    (tmp_path / "process-0.sqlite").mkdir()
    with pytest.raises(RecordError, match=r"already holds one"):
        record(tmp_path)
    with pytest.raises(RecordError, match=r"can't be written: Is a directory"):
        record(tmp_path, overwrite=True)
    with pytest.raises(RecordError, match=r"can't be written: Is a directory"):
        record(tmp_path, overwrite=True)  # the lock was released


@pytest.mark.parametrize("name", ["lock", "sqlite.new", "sqlite-wal"])
def test_a_folder_in_place_of_a_file_is_named(
    name: str, recorder: RingRecorder, tmp_path: Path
) -> None:
    (tmp_path / f"process-0.{name}").mkdir()
    with pytest.raises(RecordError, match=rf"Is a directory: process-0\.{name}\. Move that folder"):
        record(tmp_path)


def test_a_link_to_no_folder_is_named(recorder: RingRecorder, tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RecordError, match=r"link to .*nowhere, which does not exist\. Create that"):
        record(tmp_path / "run")


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


def test_too_many_open_files_are_named_as_the_cause(tmp_path: Path) -> None:
    done = own_process.run(_NO_MORE_FILES, tmp_path)
    assert done.stdout == "refused\nrefused\nrefused\n", done.stderr


_NO_MORE_FILES = """
import os, sys
import distlab as dl

dl.record(sys.argv[1] + "/first").close()  # loads what it needs
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range(3):
    try:
        dl.record(sys.argv[1] + "/run")
    except dl.errors.RecordError as error:
        assert "may open no more files. Close those" in str(error), error
        print("refused")
    os.close(held.pop())
"""


def test_a_file_that_another_program_cut_off_is_told_of_at_the_end(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    recording = record(tmp_path)
    recorder.emit(samples.step(0))
    wait_until(lambda: any(True for _ in Run.open(tmp_path).events("step")), "the first step")
    os.truncate(tmp_path / "process-0.sqlite", 100)
    with pytest.warns(RuntimeWarning, match=r"can't be read: .* malformed\. Another program"):
        recording.close()
    (lost,) = [event for event in recorder.ring.since(0).events if isinstance(event, Lost)]
    assert lost.reason.startswith("The run file can't be read: ")


def wait_for_loss(recorder: RingRecorder) -> Lost:
    limit = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < limit:
        for event in recorder.ring.since(0).events:
            if isinstance(event, Lost):
                return event
        recorder.emit(samples.step(0))
        time.sleep(0.01)
    raise AssertionError("nobody said that events are lost")


def test_a_folder_that_may_not_be_read_any_more_is_not_called_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "shut" / "run"
    done = own_process.run(_SHUT, folder)
    assert f"{folder} may not be read any more, while a run is recorded to it" in done.stderr
    assert "deleted" not in done.stderr


_SHUT = """
import pathlib, sys
import distlab
from tests.own_process import give_up_privileges

give_up_privileges()
folder = pathlib.Path(sys.argv[1])
recording = distlab.record(folder)
folder.parent.chmod(0)
try:
    recording.log(1, loss=0.5)
    recording.close()
finally:
    folder.parent.chmod(0o755)
"""


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
