"""Odd and damaged run files: each is named with its fault, and hides no other."""

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
from distlab.runs.listing import run_folders, summary_of
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
    ("unix_ns", "yesterday"),
    ("unix_ns", 1e300),
    ("unix_ns", 2**63 - 1),
    ("name", None),
    ("name", 7),
    ("name", b"\xff"),
    ("host", None),
    ("schema", "new"),
    ("process", 1.5),
    ("process_index", None),
    ("clock_offset_ns", 2**63 - 1),
]


ENDLESS: Final = "WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"


def view(path: Path, table: str, columns: str) -> None:
    """Puts a view without an end in the place of a table."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f"DROP TABLE {table}; CREATE VIEW {table} AS {ENDLESS.format(columns)};"
        )


def computed(path: Path) -> None:
    """Gives all events bodies of 900 MB, which take no place in the file."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE other (
              seq INTEGER PRIMARY KEY, time_ns, kind,
              body GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL
            );
            INSERT INTO other SELECT seq, time_ns, kind FROM events;
            DROP TABLE events;
            ALTER TABLE other RENAME TO events;
            """
        )


def replace(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


HARMFUL: Final[dict[str, Callable[[Path], None]]] = {
    "pipe": lambda path: replace(path, os.mkfifo),
    "pipe as journal": lambda path: os.mkfifo(f"{path}-journal"),
    "pipe as log": lambda path: os.mkfifo(f"{path}-wal"),
    "folder": lambda path: replace(path, Path.mkdir),
    "device": lambda path: replace(path, lambda place: place.symlink_to("/dev/zero")),
    "link to itself": lambda path: replace(path, lambda place: place.symlink_to(place.name)),
    "view of facts": lambda path: view(path, "meta", "x AS key, x AS value"),
    "view of events": lambda path: view(path, "events", "x seq, x time_ns, x kind, x body"),
    "computed bodies": computed,
}
"""What is done to run files so that a reader would wait, or compute, for ever."""


@pytest.mark.parametrize("harm", HARMFUL)
def test_a_file_made_to_be_read_for_ever_is_refused(harm: str, tmp_path: Path) -> None:
    HARMFUL[harm](recorded(tmp_path / "harmful"))
    with pytest.raises(NotARunError, match=r"The run in .*harmful can't be read: .*damaged"):
        Run.open(tmp_path / "harmful")
    recorded(tmp_path / "whole")
    faults = {row["key"]: bool(row["fault"]) for row in Folder(tmp_path).summaries()}
    assert faults == {"harmful": True, "whole": False}


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("spans", "x AS first, x AS last, x AS low_ns, x AS high_ns"),
        ("totals", "'kind' || x AS key, x AS value"),
    ],
)
def test_numbers_without_an_end_are_counted_again(table: str, columns: str, tmp_path: Path) -> None:
    path = recorded(tmp_path)
    with Run.open(tmp_path) as run:
        before = run.summary()
    view(path, table, columns)
    with Run.open(tmp_path) as run:
        assert run.summary() == before
        assert sum(1 for _ in run.events("step")) == before["steps"]


def test_a_lock_that_is_a_pipe_is_held_by_nobody(tmp_path: Path) -> None:
    os.mkfifo(recorded(tmp_path).with_suffix(".lock"))
    with Run.open(tmp_path) as run:
        assert not run.live
        assert run.summary()["status"] == "finished"


@pytest.mark.parametrize("kind", ["step", "aurora"])
def test_an_event_of_a_million_nested_lists_is_lost(kind: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE spans SET high_ns = 1e300",
        "UPDATE spans SET low_ns = 'then', first = 0",
        "UPDATE spans SET last = NULL",
        "UPDATE totals SET value = 1e300 WHERE key = 'steps'",
        "UPDATE totals SET value = -5 WHERE key = 'lost'",
        "UPDATE totals SET value = 'x' WHERE key = 'metrics'",
        "UPDATE totals SET value = NULL",
        "UPDATE events SET time_ns = 1e300",
        "UPDATE events SET kind = NULL",
        "INSERT INTO meta VALUES ('more', x'ff')",
    ],
)
def test_other_odd_numbers_are_counted_again(statement: str, tmp_path: Path) -> None:
    change(recorded(tmp_path), statement)
    with Run.open(tmp_path) as run:
        summary = run.summary()
        assert (summary["steps"], summary["lost"]) == (5, 2)
        assert 0 < summary["seconds"] < 2_000
        assert len(list(run.events(start=0, end=1e305))) >= 20
        for suffix in ("json", "jsonl", "parquet"):
            run.export(tmp_path / f"run.{suffix}")


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


def test_the_page_of_runs_has_a_row_for_one_that_can_not_be_read(tmp_path: Path) -> None:
    recorded(tmp_path / "good")
    path = recorded(tmp_path / "odd")
    change(path, "UPDATE meta SET value = 1e300 WHERE key = 'unix_ns'")
    recorded(tmp_path / "cut").write_bytes(path.read_bytes()[:1_000])
    rows = run_rows(Folder(tmp_path).summaries())
    assert rows["key"][0] == "good"
    assert rows["status"] == ["finished", "can't be read", "can't be read"]
    faults = dict(zip(rows["key"], rows["metrics"], strict=True))
    assert "it states unix_ns as 1e+300" in faults["odd"]
    assert "can't be read" in faults["cut"]


def test_a_folder_whose_name_is_not_utf_8_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "good").parent.rename(tmp_path / "bad \udcff")
    (found,) = run_folders(tmp_path)
    summary = summary_of(found)
    assert not isinstance(summary, dict)
    assert summary.why == "The folder's name is not UTF-8. Rename it."
    assert main(["runs", str(tmp_path)]) == 0
    assert "bad \\udcff" in capsys.readouterr().out
    with Run.open(found) as run:
        assert run.summary()["name"] == "a run"


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


@pytest.mark.parametrize("seed", range(8))
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


def missing(folder: Path) -> tuple[int, int]:
    """Returns how many events a run has lost by its events, and by its summary."""
    with Run.open(folder) as run:
        by_events = sum(event.count for event in run.events() if isinstance(event, Lost))
        assert by_events == sum(e.count for e in run.events(start=-1e9) if isinstance(e, Lost))
        run.advice()
        return by_events - 2, run.summary()["lost"] - 2  # the samples have lost two


UNTYPED: Final = """
CREATE TABLE other (seq, time_ns, kind, body); INSERT INTO other SELECT * FROM events;
DROP TABLE events; ALTER TABLE other RENAME TO events;
"""
"""Gives the events a table without an order, whose numbers may be anything."""


def test_the_tables_of_runs_say_how_many_events_a_run_has_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "run")  # the samples have lost two
    (row,) = run_rows(Folder(tmp_path).summaries())["metrics"]
    assert row.startswith("2 events lost, loss ")
    assert main(["runs", str(tmp_path)]) == 0
    assert "2 events lost" in capsys.readouterr().out


@pytest.mark.parametrize("seq", [-5, 1 << 41, (1 << 63) - 1])
def test_an_event_with_an_impossible_number_is_lost(seq: int, tmp_path: Path) -> None:
    change(recorded(tmp_path), "UPDATE events SET seq = ? WHERE seq = 5", seq)
    assert missing(tmp_path) == (1, 1)
    with Run.open(tmp_path) as run:
        assert run.export(tmp_path / "run.jsonl").read_text().count('"kind":"lost"') == 2


@pytest.mark.parametrize("seq", ["five", b"5", None, float("inf"), 5.5], ids=repr)
def test_a_number_of_another_type_is_that_of_a_lost_event(seq: Any, tmp_path: Path) -> None:
    path = recorded(tmp_path)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(UNTYPED)
    change(path, "UPDATE events SET seq = ? WHERE seq = 5", seq)
    assert missing(tmp_path)[0] == 1


@pytest.mark.parametrize("which", ["seq = 5", "seq BETWEEN 3 AND 6", "seq < 2", "seq > 17"])
def test_events_that_are_gone_are_counted(which: str, tmp_path: Path) -> None:
    path = recorded(tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        gone = database.execute(f"DELETE FROM events WHERE {which}").rowcount
    by_events, by_summary = missing(tmp_path)
    assert by_events == gone
    assert by_summary == (gone if which in ("seq < 2", "seq > 17") else 0)


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


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM spans",
        "UPDATE spans SET last = 3",
        "UPDATE spans SET first = 1 << 50, last = 1 << 51",
        "UPDATE spans SET low_ns = 1 << 60, high_ns = 1 << 61",
        "UPDATE spans SET first = -9",
    ],
)
def test_spans_that_would_hide_events_are_not_believed(statement: str, tmp_path: Path) -> None:
    change(recorded(tmp_path), statement)
    with Run.open(tmp_path) as run:
        assert len(list(run.events(start=-1e9))) == len(list(run.events()))


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


def test_a_folder_that_may_not_be_entered_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("closed", "open"):
        recorded(tmp_path / name)
    allowed = os.access
    inside = tmp_path / "closed"

    def access(path: Any, mode: int, **options: Any) -> bool:
        return inside != Path(path) and allowed(path, mode, **options)

    def refuse(path: Path) -> bool:
        if path.parent == inside:
            raise PermissionError(13, "Permission denied", str(path))
        return False

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setattr(Path, "is_symlink", refuse)
    assert list(run_folders(tmp_path)) == [inside, tmp_path / "open"]
    assert "may not be read" in summary_of(inside).why  # type: ignore[union-attr]


def test_a_log_of_any_size_beside_what_is_no_run_file_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recorded(tmp_path / "run")
    path.write_bytes(b"no run file" * 500)
    log = path.with_name(f"{path.name}-wal")
    with log.open("wb") as file:
        file.truncate(4 << 30)  # takes no space
    monkeypatch.setattr(shutil, "copy", lambda *_: pytest.fail("it was copied"))
    assert "file is not a database" in summary_of(path.parent).why  # type: ignore[union-attr]


@pytest.mark.parametrize("begins", [b"\x37\x7f\x06\x82", b"rubbish"])
def test_a_log_that_is_too_large_or_none_is_not_copied(begins: bytes, tmp_path: Path) -> None:
    path = recorded(tmp_path / "run")
    log = path.with_name(f"{path.name}-wal")
    with log.open("wb") as file:
        file.write(begins)
        file.truncate(4 << 30)
    with pytest.raises(sqlite3.DatabaseError, match=r"not a database|are free for a copy"):
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


@pytest.mark.parametrize("column", ["NULL", "CAST(kind AS BLOB)", "'metric'", "upper(kind)"])
def test_events_whose_column_of_kinds_is_damaged_are_found(column: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "run")
    kinds = ("metric", "step", "run_end")
    with Run.open(path.parent) as run:
        whole = {kind: list(run.events(kind)) for kind in kinds}
        summary = run.summary()
    assert all(whole.values())
    change(path, f"UPDATE events SET kind = {column}")
    with Run.open(path.parent) as run:
        for kind in kinds:  # of a loss nobody knows whether the column was damaged, too
            assert [e for e in run.events(kind) if type(e) is not Lost] == whole[kind]
        assert whole["metric"][0] in run.events("metric", start=-1)
        assert run.summary() == summary
