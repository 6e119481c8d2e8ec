"""Odd and damaged run files raise errors that name their fault, and hide no others."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final

import msgspec
import pytest

from distlab.cli import main
from distlab.errors import ArgumentTypeError, DistlabError, NewerRunWarning, NotARunError
from distlab.events import SCHEMA, Event, Lost, Preview, Sharding
from distlab.page.runs_table import run_rows
from distlab.runs import opening, run_file_reader
from distlab.runs.exports import FORMATS
from distlab.runs.listing import summary_of
from distlab.runs.run import Run
from distlab.runs.run_file import RunFile
from distlab_dashboard.library import Folder
from tests.recording import samples


def recorded(folder: Path, steps: int = 5) -> Path:
    """Writes a run, and returns its file."""
    file = RunFile(folder, "a run")
    # The samples' batch lacks indices that its preview has.
    apart = (Preview, Sharding)
    shown = [event for event in samples.one_of_each() if not isinstance(event, apart)]
    events: list[Event] = [samples.run(), samples.sharding(0, bytes(32)), *shown]
    file.write([*events, *map(samples.step, range(1, steps)), samples.end()])
    file.close()
    return file.path


def change(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement, values).rowcount


ODD_META = [
    ("unix_ns", None),
    ("unix_ns", 1e300),
    ("name", b"\xff"),
    ("clock_offset_ns", 2**63 - 1),
]


ENDLESS: Final = "WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"


def view(path: Path, table: str, columns: str) -> None:
    """Puts a view without an end in the place of a table."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f"DROP TABLE {table}; CREATE VIEW {table} AS {ENDLESS.format(columns)};"
        )


def replace(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


HARMFUL: Final[dict[str, Callable[[Path], None]]] = {
    "pipe": lambda path: replace(path, os.mkfifo),
    "pipe as log": lambda path: os.mkfifo(f"{path}-wal"),
    "device": lambda path: replace(path, lambda place: place.symlink_to("/dev/zero")),
    "view of facts": lambda path: view(path, "meta", "x AS key, x AS value"),
    "view of events": lambda path: view(path, "events", "x seq, x time_ns, x kind, x body"),
}
"""Changes to run files with which a reader would wait, or compute, without an end."""


@pytest.mark.parametrize("harm", HARMFUL)
def test_a_file_made_to_be_read_without_an_end_is_refused(harm: str, tmp_path: Path) -> None:
    HARMFUL[harm](recorded(tmp_path / "harmful"))
    with pytest.raises(NotARunError, match=r"The run in .*harmful can't be read: .*damaged"):
        Run.open(tmp_path / "harmful")
    recorded(tmp_path / "whole")
    faults = {row["key"]: bool(row["fault"]) for row in Folder(tmp_path).summaries()}
    assert faults == {"harmful": True, "whole": False}


def test_an_event_of_a_million_nested_lists_is_lost(tmp_path: Path) -> None:
    kind = "aurora"
    path = recorded(tmp_path)
    whole = msgspec.msgpack.encode({"kind": kind, "time_ns": 9, "odd": 1})
    deep = whole[:-1] + b"\x91" * 1_000_000 + b"\x01"
    with Run.open(tmp_path) as run:
        end = run.since(0).cursor
    change(path, "INSERT INTO events VALUES (?, 9, ?, ?)", end, kind, deep)
    with Run.open(tmp_path) as run:
        (*_, last) = run.events()
        run.advice()
        for known in FORMATS:
            assert run.export(tmp_path / known.example).stat().st_size
    assert isinstance(last, Lost)
    assert repr(kind) in last.reason


@pytest.mark.parametrize(("key", "value"), ODD_META, ids=repr)
def test_odd_facts_are_named(key: str, value: Any, tmp_path: Path) -> None:
    change(recorded(tmp_path), "UPDATE meta SET value = ? WHERE key = ?", value, key)
    with pytest.raises(NotARunError, match=rf"can't be read: it states {key} as "):
        Run.open(tmp_path)


@pytest.mark.parametrize("table", ["spans", "totals"])
def test_missing_numbers_are_counted_again(table: str, tmp_path: Path) -> None:
    path = recorded(tmp_path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"DROP TABLE {table}")
    with Run.open(tmp_path) as run:
        summary = run.summary()
        assert (summary["steps"], summary["lost"]) == (5, 2)
        assert len(list(run.events(start=-1e9))) == len(list(run.events()))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            b"\x83\xa4kind\xa4step\xa7time_ns\xcb\x7e\x37\xe4\x3c\x88\x00\x75\x9c\xa4step\x01",
            "'step'",
        ),
        (
            b"\x84\xa4kind\xa4lost\xa7time_ns\xcf" + b"\xff" * 8 + b"\xa5count\x01\xa6reason\xa0",
            "'lost'",
        ),
    ],
    ids=["1e300", "2**64 - 1"],
)
def test_an_event_with_an_impossible_time_is_lost(body: bytes, why: str, tmp_path: Path) -> None:
    path = recorded(tmp_path)
    change(path, "UPDATE events SET body = ? WHERE kind = ?", body, why.strip("'"))
    with Run.open(tmp_path) as run:
        lost = [event.reason for event in run.events() if isinstance(event, Lost)]
    assert f"An event of kind {why} in the run file is damaged." in lost


def test_one_odd_run_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path / "good")
    for number, (key, value) in enumerate(ODD_META):
        path = recorded(tmp_path / f"odd-{number:02}")
        change(path, "UPDATE meta SET value = ? WHERE key = ?", value, key)
    (tmp_path / "folder" / "process-0.sqlite").mkdir(parents=True)
    assert main(["runs", str(tmp_path)]) == 0
    _head, good, *odd = capsys.readouterr().out.splitlines()
    assert good.startswith("good ")
    assert [line.split()[0] for line in odd] == [
        "folder",
        *(f"odd-{number:02}" for number in range(len(ODD_META))),
    ]
    assert all("  can't be read  " in line for line in odd)


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5_000, b"runs", 3, None], ids=ascii)
def test_what_names_no_run_is_refused(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotARunError):
        Run.open(path)


def test_a_run_is_opened_and_not_made(tmp_path: Path) -> None:
    recorded(tmp_path)
    with pytest.raises(ArgumentTypeError, match=r"call dl\.Run\.open\('.*'\)"):
        Run(str(tmp_path))  # type: ignore[arg-type]


def test_a_newer_schema_is_told_of(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    change(path, "UPDATE meta SET value = ? WHERE key = 'schema'", SCHEMA + 1)
    with pytest.warns(NewerRunWarning, match=f"schema {SCHEMA + 1}; this one knows {SCHEMA}"):
        run = Run.open(tmp_path)
    with run:
        assert run.summary()["steps"] == 5


def left_by_a_killed_process(folder: Path) -> Path:
    """Copies a run that is being written, and returns its file; it has a log."""
    file = RunFile(folder / "running", "a run")
    file.write([samples.step(number) for number in range(100)])
    (folder / "killed").mkdir()
    for name in ("process-0.sqlite", "process-0.sqlite-wal"):
        shutil.copy(folder / "running" / name, folder / "killed" / name)
    file.close()
    # Nobody can make SQLite's shared memory there, as in a place that is only read.
    (folder / "killed" / "process-0.sqlite-shm").mkdir()
    return folder / "killed" / "process-0.sqlite"


def test_a_log_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    path = left_by_a_killed_process(tmp_path)
    before = {one.name: one.stat().st_mtime_ns for one in path.parent.iterdir()}
    with Run.open(path.parent) as run:
        assert run.summary()["steps"] == 100
        assert len(list(run.events("step"))) == 100
        assert run.summary()["status"] == "killed"
    assert {one.name: one.stat().st_mtime_ns for one in path.parent.iterdir()} == before


def test_a_log_that_is_damaged_is_told_of(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    path.with_name(f"{path.name}-wal").mkdir()
    with pytest.warns(RuntimeWarning, match="its last events may be missing"):
        run = Run.open(tmp_path)
    with run:
        assert run.summary()["steps"] == 5


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Returns a file with some bytes changed, or cut off."""
    data = bytearray(whole)
    how = chance.randrange(4)
    if how == 0:
        return bytes(data[: chance.randrange(len(data))])
    for _ in range(chance.choice([1, 4, 30, 300])):
        place = chance.randrange(len(data))
        data[place] = (
            data[place] ^ (1 << chance.randrange(8)) if how == 1 else chance.randrange(256)
        )
    if how == 3:
        start = chance.randrange(len(data))
        data[start : start + 512] = bytes(min(512, len(data) - start))
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_exported_or_refused(seed: int, tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", steps=200)
    whole = path.read_bytes()
    chance = random.Random(seed)
    for turn in range(3):
        path.write_bytes(damaged(whole, chance))
        summary_of(path.parent)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NewerRunWarning)
                run = Run.open(path.parent)
        except NotARunError:
            continue
        with run:
            for known in FORMATS[turn > 0 :]:  # a page takes longer than all others
                target = tmp_path / f"run{known.suffix}"
                try:
                    run.export(target, overwrite=True)
                except DistlabError as error:
                    assert "can't be" in str(error)  # noqa: PT017 - both endings are right
                else:
                    assert target.stat().st_size


def test_the_tables_of_runs_say_how_many_events_a_run_has_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "run")  # the samples have lost two
    (row,) = run_rows(Folder(tmp_path).summaries())["metrics"]
    assert row.startswith("2 events lost, loss ")
    assert main(["runs", str(tmp_path)]) == 0
    assert "2 events lost" in capsys.readouterr().out


@pytest.mark.parametrize("which", ["seq = 5", "seq BETWEEN 3 AND 6", "seq < 2"])
def test_events_that_are_gone_are_counted(which: str, tmp_path: Path) -> None:
    path = recorded(tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        gone = database.execute(f"DELETE FROM events WHERE {which}").rowcount
    with Run.open(tmp_path) as run:
        by_events = sum(event.count for event in run.events() if isinstance(event, Lost))
        assert by_events == gone + 2  # the samples have lost two
        run.advice()


def test_a_number_far_beyond_the_end_ends_the_run(tmp_path: Path) -> None:
    change(recorded(tmp_path), "INSERT INTO events VALUES (1 << 39, 9, 'step', x'00')")
    with Run.open(tmp_path) as run:
        for _ in range(2):
            (*_, last) = run.events()
            assert isinstance(last, Lost)
            assert "how many events are missing here is not known" in last.reason


def test_a_table_without_bodies_is_no_run(tmp_path: Path) -> None:
    with closing(sqlite3.connect(recorded(tmp_path))) as database:
        database.execute("ALTER TABLE events DROP COLUMN body")
    with pytest.raises(NotARunError, match=r"can't be read: no such column: body.*damaged"):
        Run.open(tmp_path)


INCONSISTENT: dict[str, Callable[[], Event]] = {
    "no sizes": lambda: msgspec.structs.replace(samples.sharding(1, bytes(32)), sizes=()),
    "a far past": lambda: msgspec.structs.replace(samples.step(2), time_ns=-(2**62)),
    "a long step": lambda: msgspec.structs.replace(samples.step(3), dispatched_ns=-(2**62)),
    "huge sizes": lambda: msgspec.structs.replace(samples.sharding(1), sizes=[2**61] * 2),
    "many workers": lambda: msgspec.structs.replace(samples.closures(1), workers=2**62),
    "many processes": lambda: msgspec.structs.replace(samples.run(), processes=2**62),
    "fewer processes": lambda: msgspec.structs.replace(samples.run(), processes=-(2**62)),
}


@pytest.mark.parametrize("kind", INCONSISTENT)
def test_events_that_do_not_fit_are_used_or_told_of(kind: str, tmp_path: Path) -> None:
    file = RunFile(tmp_path / "run", "a run")
    event = INCONSISTENT[kind]()
    file.write([samples.run(), samples.sharding(0, bytes(32)), event, *samples.one_of_each()])
    file.write([*map(samples.step, range(4, 9)), samples.end()])
    file.close()
    with Run.open(tmp_path / "run") as run:
        for use in (
            *(run.advice, run.summary, run.programs, lambda: run.compare(run)),
            lambda: run.to_tensorboard(tmp_path / "logs"),
        ):
            with contextlib.suppress(NotARunError):
                use()
        assert "a run" in run._repr_html_()


@pytest.mark.parametrize("sizes", [[2**61] * 2, [-(2**61)]], ids=str)
def test_a_batch_of_impossible_size_is_told_of(sizes: list[int], tmp_path: Path) -> None:
    file = RunFile(tmp_path / "run", "a run")
    file.write([samples.run(), msgspec.structs.replace(samples.sharding(0), sizes=sizes)])
    file.close()
    with Run.open(tmp_path / "run") as run:
        for write in (run.export, run.to_tensorboard):
            with pytest.raises(NotARunError, match=r"holds what no recording does \(ValueError"):
                write(tmp_path / "run.html")


def test_any_error_of_damaged_events_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "run")
    monkeypatch.setattr("distlab.runs.run.advise", lambda _: os.environ["NO_SUCH"])
    with Run.open(tmp_path / "run") as run:
        with pytest.raises(NotARunError, match=r"can't be advised on.*KeyError.*is damaged"):
            run.advice()
        assert "advised on" in run._repr_html_()
    assert main(["advise", str(tmp_path / "run")]) != 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_log_that_is_too_large_is_not_copied(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run")
    log = path.with_name(f"{path.name}-wal")
    with log.open("wb") as file:
        file.truncate(4 << 30)  # takes no space
    with pytest.raises(sqlite3.DatabaseError, match=r"it has 4\.\d+ GB"):
        opening._opened_copy(path, log)
    assert not list(Path(gettempdir()).glob("distlab-run-*"))


def test_large_events_are_read_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recorded(tmp_path / "run", steps=50)
    with Run.open(path.parent) as run:
        whole = list(run.events())
    monkeypatch.setattr(run_file_reader, "MOST_BODIES", 100)  # a row or two
    with Run.open(path.parent) as run:
        assert list(run.events()) == whole
        assert len(run.since(0, 50).events) < 5


def test_an_event_that_no_recording_makes_so_large_is_lost(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run")
    with Run.open(path.parent) as run:
        whole = list(run.events())
    change(path, "UPDATE events SET body = zeroblob(100000000) WHERE seq = 3")
    with Run.open(path.parent) as run:
        found = list(run.events())
    place = next(place for place, event in enumerate(found) if isinstance(event, Lost))
    assert [*found[:place], whole[place], *found[place + 1 :]] == whole


def test_a_run_whose_file_is_a_link_is_not_read(tmp_path: Path) -> None:
    private = recorded(tmp_path / "private")
    runs = tmp_path / "runs"
    (runs / "link").mkdir(parents=True)
    (runs / "link" / private.name).symlink_to(private)
    recorded(runs / "own")
    library = Folder(runs)
    library.start()
    try:
        faults = {row["key"]: row["fault"] for row in library.summaries()}
        assert faults == {"link": "Its file is a link, and may lie outside.", "own": ""}
        with pytest.raises(NotARunError, match="is not one of them"):
            library.hold("link")
    finally:
        library.stop()
