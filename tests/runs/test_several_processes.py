"""The run files of several processes in a folder are one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab import cli
from distlab.errors import NotARunError, RecordError
from distlab.events import (
    AnyEvent,
    ClockOffset,
    Event,
    Metric,
    RunEnd,
    Step,
    StepReady,
    Strategy,
    TimedSource,
)
from distlab.events import Run as RunBegin
from distlab.page.runs_table import run_rows
from distlab.recording import Run
from distlab.runs.run_file import RunFile
from distlab_dashboard.library import Library
from tests.recording import samples

SECOND = 1_000_000_000
OFFSET = 1_000 * SECOND
"""The second process's clock is this much behind that of the first."""


def begin(process: int, time_ns: int) -> RunBegin:
    own = {"process": 70 + process, "host": f"host-{process}", "process_index": process}
    return msgspec.structs.replace(samples.run(), time_ns=time_ns, processes=2, **own)


def step(number: int, time_ns: int) -> Step:
    made = samples.step(number)
    return msgspec.structs.replace(made, time_ns=time_ns, dispatched_ns=time_ns, examples=2)


def is_live(run: Run) -> bool:
    return run.live  # a call, so that mypy lets it change


def write(
    folder: Path, process: int, events: list[Event], offset_ns: int = 0, batch: int = 4
) -> RunFile:
    file = RunFile(folder, "a run", process=process, clock_offset_ns=offset_ns)
    for at in range(0, len(events), batch):
        file.write(events[at : at + batch])
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two processes with three steps each, the second always half a second later."""
    for process in range(2):
        late = process * SECOND // 2
        own_ns = [number * SECOND + late - process * OFFSET for number in range(6)]
        events: list[Event] = [
            begin(process, own_ns[0]),
            msgspec.structs.replace(samples.strategy(), time_ns=own_ns[1]),
            *(step(number, own_ns[2 + number]) for number in range(3)),
            StepReady(time_ns=own_ns[5], step=2, strategy=0, ready_ns=[own_ns[5]], resolution_ns=1),
            Metric(time_ns=own_ns[5] + 1, step=2, values={"loss": float(process)}),
            RunEnd(time_ns=own_ns[5] + 2, status="finished"),
        ]
        write(tmp_path, process, events, process * OFFSET).close()
    return tmp_path


def test_events_are_in_one_order_on_one_clock(folder: Path) -> None:
    with Run.open(folder) as run:
        assert run.processes == (0, 1)
        assert run.meta["process_index"] == 0
        events = list(run.events())
        times = [event.time_ns for event in events]
        assert times == sorted(times)
        assert len(times) == 16
        chunk = run.since(0)
        assert chunk.events == events
        assert chunk.processes[:4] == (0, 1, 0, 1)
        ready = [event.ready_ns for event in run.events("step_ready") if type(event) is StepReady]
        assert ready == [[5 * SECOND], [5 * SECOND + SECOND // 2]]
        assert run.seconds == pytest.approx(5.5)
        assert isinstance(run, TimedSource)


def test_a_part_of_the_time_has_the_events_of_all_processes(folder: Path) -> None:
    with Run.open(folder) as run:
        found = [
            (e.step, e.time_ns) for e in run.events("step", start=2.5, end=4) if type(e) is Step
        ]
        assert found == [(0, 5 * SECOND // 2), (1, 3 * SECOND), (1, 7 * SECOND // 2)]
        pages = run.between(0, 1 << 62, before=5)
        assert [event for page in pages for event in page] == run.since(0, 5).events
        standing = [e for page in run.between(0, 1 << 62, standing=True) for e in page]
        assert [type(event) for event in standing] == [RunBegin, RunBegin, Strategy, Strategy]


def test_a_clock_that_was_compared_again_counts_from_then_on(tmp_path: Path) -> None:
    write(tmp_path, 0, [begin(0, 0), *(step(n, (2 + n) * SECOND) for n in range(4))]).close()
    own: list[Event] = [begin(1, -OFFSET), *(step(n, (2 + n) * SECOND - OFFSET) for n in range(2))]
    offset_ns = OFFSET + SECOND // 4
    own += [ClockOffset(time_ns=7 * SECOND // 2 - OFFSET, offset_ns=offset_ns, error_ns=1)]
    own += [step(n, (2 + n) * SECOND - OFFSET) for n in range(2, 4)]
    write(tmp_path, 1, own, OFFSET).close()
    with Run.open(tmp_path) as run:
        times = [event.time_ns / SECOND for event in run.events("step")]
        assert times == [2, 2, 3, 3, 4, 4.25, 5, 5.25]
        assert [e.time_ns / SECOND for e in run.since(0).events if type(e) is Step] == times
        assert run.seconds == pytest.approx(5.25)
        part = [event.time_ns / SECOND for event in run.events("step", start=4, end=5.25)]
        assert part == [4, 4.25, 5]


def test_a_summary_counts_steps_once_and_examples_of_all(folder: Path) -> None:
    with Run.open(folder) as run:
        summary = run.summary()
    assert (summary["steps"], summary["examples"], summary["lost"]) == (3, 12, 0)
    assert summary["strategies"] == [samples.strategy().name]
    assert summary["metrics"] == {"loss": 0.0}
    assert summary["status"] == "finished"
    assert summary["process"] == Run.open(folder).meta["process"]


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        (["finished", "failed"], "failed"),
        (["interrupted", "finished"], "interrupted"),
        (["finished", None], "killed"),
    ],
)
def test_a_run_ended_as_its_worst_process(ends: list[Any], status: str, tmp_path: Path) -> None:
    for process, end in enumerate(ends):
        last = [RunEnd(time_ns=1, status=end)] if end else []
        write(tmp_path, process, [begin(process, 0), *last]).close()
    assert Run.open(tmp_path).summary()["status"] == status


def test_exports_name_the_process(folder: Path, tmp_path: Path) -> None:
    with Run.open(folder) as run:
        meta, *lines = run.export(tmp_path / "events.jsonl").read_text().splitlines()
        events = list(run.events())
        trace = json.loads(run.export(tmp_path / "trace.json").read_text())["traceEvents"]
        table, begun = run.to_pandas("metric"), run.to_pandas("run")
    decoder = msgspec.json.Decoder(AnyEvent, strict=False)
    assert [decoder.decode(line) for line in lines] == events
    assert [json.loads(line).get("process_index", 0) for line in lines[:4]] == [0, 1, 0, 1]
    assert json.loads(meta)["process_index"] == 0
    assert {entry["pid"] for entry in trace} == {70, 71}
    calls = [(e["pid"], e["ts"]) for e in trace if e.get("cat") == "step"]
    assert calls[:2] == [(70, 2e6), (71, 2.5e6)]
    assert table["process_index"].tolist() == [0, 1]
    assert begun["process_index"].tolist() == [0, 1]
    assert lines[1].count('"process_index"') == 1


def test_a_run_lives_as_long_as_one_of_its_processes(tmp_path: Path) -> None:
    first, second = write(tmp_path, 0, [begin(0, 0)]), write(tmp_path, 1, [begin(1, 1)])
    with Run.open(tmp_path) as run:
        first.close()
        assert is_live(run)
        assert run.summary()["status"] == "running"
        assert len(run.since(0).events) == 2
        second.close()
        assert not is_live(run)
        assert run.since(2).events == []


def test_first_process_owns_folder_and_others_their_file(folder: Path) -> None:
    with pytest.raises(RecordError, match="already holds one"):
        RunFile(folder, "again", process=1)
    RunFile(folder, "again", process=1, overwrite=True).close()
    assert len(list(folder.glob("process-*.sqlite"))) == 2
    with pytest.raises(RecordError, match="already holds one"):
        RunFile(folder, "again")
    RunFile(folder, "again", overwrite=True).close()
    assert [path.name for path in folder.glob("process-*.sqlite")] == ["process-0.sqlite"]


def test_processes_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for process in (10, 2):
        write(tmp_path, process, [begin(process, process)]).close()
    with Run.open(tmp_path) as run:
        assert run.processes == (2, 10)
        assert run.since(0).processes == (2, 10)


def test_a_file_that_can_not_be_read_is_named(folder: Path) -> None:
    (folder / "process-1.sqlite").write_text("no database")
    with pytest.raises(NotARunError, match=r"its file process-1.sqlite is damaged.*database\. W"):
        Run.open(folder)
    (folder / "process-1.sqlite").unlink()
    with Run.open(folder) as run:
        assert run.processes == (0,)


@settings(max_examples=10, deadline=None)  # it writes files
@given(
    late=st.lists(st.lists(st.integers(0, 9), max_size=20), min_size=2, max_size=3),
    limit=st.integers(1, 30),
)
def test_chunks_pages_and_ranges_hold_the_same_events(
    tmp_path_factory: pytest.TempPathFactory, late: list[list[int]], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    for process, delays in enumerate(late):
        own: list[Event] = [
            step(number, max(number - by, 0) - process * OFFSET) for number, by in enumerate(delays)
        ]
        write(folder, process, own, process * OFFSET).close()
    with Run.open(folder) as run:
        events = list(run.events())
        assert len(events) == sum(map(len, late))
        found, cursor = [], 0
        while (chunk := run.since(cursor, limit)).events:
            found += chunk.events
            cursor = chunk.cursor
        assert found == events
        for low in (0, 3):
            part = [event for page in run.between(low, 12) for event in page]
            expected = [event for event in events if low <= event.time_ns < 12]
            assert sorted(map(repr, part)) == sorted(map(repr, expected))


def test_a_process_without_a_file_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Run.open(folder) as run:
        assert run.summary()["missing"] == []
    (folder / "process-1.sqlite").unlink()
    with Run.open(folder) as run:
        assert run.summary()["missing"] == ["worker 1"]
        assert "no file of" in run._repr_html_()
    assert cli.main(["runs", str(folder)]) == 0
    assert "no file of worker 1" in capsys.readouterr().out
    rows = run_rows(Library(folder.parent).summaries())
    assert rows["metrics"][rows["key"].index(folder.name)].startswith("no file of worker 1")
