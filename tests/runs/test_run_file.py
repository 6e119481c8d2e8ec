from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from distlab.errors import NotARunError, RecordError
from distlab.events import Chunk, Event, Lost, Step, StepReady, Unknown, kind_of
from distlab.runs.run import Run
from distlab.runs.run_file import RunFile, being_written, event_of
from tests.recording import samples


def written(folder: Path, events: list[Event]) -> Path:
    file = RunFile(folder, "a run")
    file.write(events)
    file.close()
    return file.path


def is_live(run: Run) -> bool:
    return run.live  # a call, so that mypy lets it change


def test_every_kind_comes_back_as_it_was(tmp_path: Path) -> None:
    events = samples.one_of_each()
    written(tmp_path, events)
    with Run.open(tmp_path) as run:
        assert run.since(0).events == events
        for event in events:
            assert event in list(run.events(kind_of(event)))


def test_a_kind_of_a_newer_version_is_kept_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, [samples.step(0)])
    body = msgspec.msgpack.encode({"kind": "aurora", "time_ns": 42, "colour": "green"})
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO events VALUES (1, 42, 'aurora', ?)", (body,))
    unknown = Unknown(time_ns=42, kind="aurora", fields={"colour": "green"})
    with Run.open(tmp_path) as run:
        assert run.since(0).events == [samples.step(0), unknown]
        assert list(run.events("aurora")) == [unknown]


def test_a_known_kind_with_a_new_field_is_still_that_kind() -> None:
    fields: dict[str, Any] = msgspec.to_builtins(samples.step(3)) | {"novelty": 1}
    assert event_of("step", msgspec.msgpack.encode(fields)) == samples.step(3)


def test_numbers_of_numpy_are_stored_as_numbers(tmp_path: Path) -> None:
    times: Any = [np.int64(8), np.int32(9)]
    written(tmp_path, [StepReady(time_ns=1, step=0, strategy=0, ready_ns=times, resolution_ns=1)])
    with Run.open(tmp_path) as run:
        (event,) = run.since(0).events
    assert isinstance(event, StepReady)
    assert event.ready_ns == [8, 9]


def test_a_closed_file_is_a_single_file(tmp_path: Path) -> None:
    written(tmp_path, [samples.step(0)])
    assert [path.name for path in tmp_path.iterdir()] == ["process-0.sqlite"]


def test_closed_file_holds_all_by_itself_where_somebody_reads_it(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "run", "run")
    file.write([samples.step(0)])
    with Run.open(tmp_path / "run") as reader:
        file.write([samples.step(1)])
        file.close()
        assert reader.since(0).events == [samples.step(0), samples.step(1)]
        (tmp_path / "copy").mkdir()
        shutil.copy(file.path, tmp_path / "copy")
    with Run.open(tmp_path / "copy") as run:
        assert run.since(0).events == [samples.step(0), samples.step(1)]


def test_finished_run_opens_from_folder_that_can_not_be_written(tmp_path: Path) -> None:
    written(tmp_path, [samples.step(0)])
    tmp_path.chmod(0o500)
    try:
        with Run.open(tmp_path) as run:
            assert run.since(0).events == [samples.step(0)]
    finally:
        tmp_path.chmod(0o700)


def test_a_finished_run_is_not_written_over_unless_told(tmp_path: Path) -> None:
    written(tmp_path, [samples.step(0)])
    with pytest.raises(RecordError, match=r"already holds one.*overwrite=True"):
        RunFile(tmp_path, "again")
    file = RunFile(tmp_path, "again", overwrite=True)
    file.write([samples.step(9)])
    file.close()
    with Run.open(tmp_path) as run:
        assert run.since(0).events == [samples.step(9)]


def test_a_folder_that_is_being_recorded_to_is_refused(tmp_path: Path) -> None:
    file = RunFile(tmp_path, "first")
    assert being_written(file.path)
    with pytest.raises(RecordError, match="being recorded to right now"):
        RunFile(tmp_path, "second", overwrite=True)
    file.close()
    assert not being_written(file.path)


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_a_lock_that_is_no_regular_file_is_refused(kind: str, tmp_path: Path) -> None:
    folder, victim = tmp_path / "run", tmp_path / "precious.txt"
    folder.mkdir()
    lock = folder / "process-0.lock"
    if kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.symlink_to(victim)
    if kind == "link":
        victim.write_text("precious")
    with pytest.raises(RecordError, match=r"process-0\.lock in it is a link or no regular file"):
        RunFile(folder, "first")
    assert victim.exists() == (kind == "link")
    assert kind != "link" or victim.read_text() == "precious"


def test_links_with_the_names_of_run_files_are_replaced(tmp_path: Path) -> None:
    folder, victim = tmp_path / "run", tmp_path / "precious.txt"
    folder.mkdir()
    victim.write_text("precious")
    name = "process-0.sqlite"
    for suffix in ("", ".new", "-wal", "-shm", "-journal"):
        (folder / f"{name}{suffix}").symlink_to(victim)
    file = RunFile(folder, "first", overwrite=True)
    file.write(samples.one_of_each())
    file.close()
    assert (victim.read_text(), [path.name for path in folder.iterdir()]) == ("precious", [name])


def test_a_mark_replaces_that_of_an_earlier_process(tmp_path: Path) -> None:
    (tmp_path / "process-0.lock").write_text("the mark of a killed process")
    file = RunFile(tmp_path, "first")
    file.mark("new")
    assert (tmp_path / "process-0.lock").read_text() == "new"
    file.close()


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RunFile(tmp_path / "held", "first")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        with pytest.raises(RecordError, match=r"can't be locked: Function not .* Record to a disk"):
            RunFile(tmp_path / "new", "second")
        assert not being_written(file.path)
    file.close()


@pytest.mark.parametrize("what", ["missing", "empty", "file", "text"])
def test_what_is_not_a_run_is_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    if what == "file":
        path.write_text("not a folder")
    elif what != "missing":
        path.mkdir()
    if what == "text":
        (path / "process-0.sqlite").write_text("not a database, though long enough to be read")
    with pytest.raises(NotARunError, match="run"):
        Run.open(path)


def test_of_a_file_that_was_cut_off_the_rest_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, [samples.step(number) for number in range(5_000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with Run.open(tmp_path) as run:
        events = list(run.events())
        assert run.summary()["steps"] == 5_000  # the totals were not cut off
    steps = [event.step for event in events if isinstance(event, Step)]
    lost = [event for event in events if isinstance(event, Lost)]
    assert len(steps) > 500
    assert steps == sorted(steps)
    assert lost
    assert "damaged" in lost[0].reason


def test_of_a_file_with_damaged_pages_all_others_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, [samples.step(number) for number in range(5_000)])
    page = 4_096
    whole = path.read_bytes()
    held = whole.index(b"dispatched_ns", len(whole) // 2) // page  # a page of the table
    path.write_bytes(whole[: held * page] + b"\xff" * page + whole[(held + 1) * page :])
    with Run.open(tmp_path) as run:
        events = list(run.events())
    steps = [event.step for event in events if isinstance(event, Step)]
    lost = sum(event.count for event in events if isinstance(event, Lost))
    assert len(steps) + lost == 5_000
    assert 0 < lost < 500


def test_a_run_is_read_while_it_is_written(tmp_path: Path) -> None:
    file = RunFile(tmp_path, "run")
    with Run.open(tmp_path) as run:
        assert is_live(run)
        assert run.since(0) == Chunk([], 0, 0)
        cursor = 0
        for number in range(3):
            file.write([samples.step(number)])
            chunk = run.since(cursor)
            assert chunk.events == [samples.step(number)]
            cursor = chunk.cursor
        file.close()
        assert not is_live(run)
        assert run.since(0).events == [samples.step(number) for number in range(3)]
