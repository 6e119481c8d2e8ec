"""Odd and damaged run files raise errors that name their fault, and hide no others."""

from __future__ import annotations

import os
import shutil
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from distlab.cli import main
from distlab.errors import DistlabError, NewerRunWarning, NotARunError
from distlab.events import SCHEMA, Event, Lost, Preview, Sharding
from distlab.page.runs_table import run_rows
from distlab.runs import run_file_reader
from distlab.runs.exports import FORMATS
from distlab.runs.listing import summary_of
from distlab.runs.run import Run
from distlab.runs.run_file import RunFile
from distlab_dashboard.library import Library
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
    faults = {row.key: bool(row.fault) for row in Library(tmp_path).summaries()}
    assert faults == {"harmful": True, "whole": False}


def test_event_of_a_million_nested_lists_is_lost(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    whole = msgspec.msgpack.encode({"kind": "aurora", "time_ns": 9, "odd": 1})
    deep = whole[:-1] + b"\x91" * 1_000_000 + b"\x01"
    with Run.open(tmp_path) as run:
        end = run.since(0).cursor
    change(path, "INSERT INTO events VALUES (?, 9, 'aurora', ?)", end, deep)
    with Run.open(tmp_path) as run:
        (*_, last) = run.events()
        run.advice()
        assert run.export(tmp_path / "events.jsonl").stat().st_size
    assert isinstance(last, Lost)
    assert "'aurora'" in last.reason


def test_missing_numbers_are_counted_again(tmp_path: Path) -> None:
    with closing(sqlite3.connect(recorded(tmp_path))) as database:
        database.executescript("DROP TABLE spans; DROP TABLE totals")
    with Run.open(tmp_path) as run:
        summary = run.summary()
        assert (summary["steps"], summary["lost"]) == (5, 2)
        assert len(list(run.events(start=-1e9))) == len(list(run.events()))


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


PAGE: Final = 4_096


def put(data: bytearray, at: int, new: bytes) -> None:
    data[at : at + len(new)] = new


def flip(data: bytearray, first: int, every: int) -> None:
    for place in range(first, len(data), every):
        data[place] ^= 1


DAMAGE: Final[dict[str, Callable[[bytearray], None]]] = {
    "emptied": lambda data: data.clear(),
    "cut within a page": lambda data: data.__delitem__(slice(len(data) // 2 + 100, None)),
    "another magic number": lambda data: put(data, 0, b"no database"),
    "a schema of zeros": lambda data: put(data, 100, bytes(512)),
    "a page of zeros": lambda data: put(data, 2 * PAGE, bytes(PAGE)),
    "a page of ones": lambda data: put(data, len(data) // 2 // PAGE * PAGE, b"\xff" * PAGE),
    "a bit of each page": lambda data: flip(data, 8, PAGE),
    "a bit of each event": lambda data: flip(data, 100, 97),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_file_gives_its_events_or_a_typed_error(kind: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", steps=100)
    data = bytearray(path.read_bytes())
    DAMAGE[kind](data)
    path.write_bytes(data)
    summary_of(path.parent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NewerRunWarning)
            run = Run.open(path.parent)
    except NotARunError:
        return
    page = kind == "a page of ones"  # a page takes longer than all others
    with run:
        uses: list[Callable[[], object]] = [run.summary, run.advice]
        uses.append(lambda: list(run.events("step", start=2, end=5)))
        uses += [partial(run.export, tmp_path / known.example) for known in FORMATS[not page :]]
        for use in uses:
            try:
                assert use() is not None
            except DistlabError as error:
                assert "can't be" in str(error)  # noqa: PT017 - both endings are right


def test_the_tables_of_runs_say_how_many_events_a_run_has_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "run")  # the samples have lost two
    (row,) = run_rows(Library(tmp_path).summaries())["metrics"]
    assert row.startswith("2 events lost, loss ")
    assert main(["runs", str(tmp_path)]) == 0
    assert "2 events lost" in capsys.readouterr().out


def test_events_that_are_gone_are_counted(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        gone = database.execute("DELETE FROM events WHERE seq BETWEEN 3 AND 6").rowcount
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


def test_batch_of_impossible_size_is_named_by_exports(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "run", "a run")
    file.write([samples.run(), msgspec.structs.replace(samples.sharding(0), sizes=[2**61] * 2)])
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
    library = Library(runs)
    library.start()
    try:
        faults = {row.key: row.fault for row in library.summaries()}
        assert faults == {"link": "Its file is a link, and may lie outside.", "own": ""}
        with pytest.raises(NotARunError, match="is not one of them"):
            library.hold("link")
    finally:
        library.stop()
