"""A run is read by time, followed while it is written, and summed up without reading it all."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from distlab.errors import NotARunError
from distlab.events import Event, Lost, Metric, Step
from distlab.events import Run as RunBegin
from distlab.recording import RingRecorder, Run, record
from distlab.runs.run_file import RunFile
from tests.recording import samples

SECOND = 1_000_000_000


def is_live(run: Run) -> bool:
    return run.live  # a call, so that mypy lets it change


def test_the_folder_of_runs_in_place_of_one_names_them(tmp_path: Path) -> None:
    with pytest.raises(NotARunError, match=r"holds no run file\. Name the folder"):
        Run.open(tmp_path)
    for name in "dcba":
        written(tmp_path / name)
    with pytest.raises(NotARunError, match=r"but the runs 'a', 'b', 'c' and others\. Name the"):
        Run.open(tmp_path)


def begin(time_ns: int) -> RunBegin:
    return structs.replace(samples.run(), time_ns=time_ns)


def step(number: int, time_ns: int) -> Step:
    made = samples.step(number)
    return structs.replace(made, time_ns=time_ns, dispatched_ns=time_ns, examples=2)


def steps_of(run: Run, **times: Any) -> list[int]:
    return [e.step for e in run.events("step", **times) if isinstance(e, Step)]


def written(folder: Path, *batches: list[Event]) -> Path:
    file = RunFile(folder, "a run")
    for batch in batches:
        file.write(batch)
    file.close()
    return file.path


@settings(max_examples=15, deadline=None)  # it writes files
@given(
    late=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    size=st.integers(1, 9),
    start=st.integers(-5, 70),
    length=st.integers(1, 40),
)
def test_a_part_of_the_time_has_exactly_its_events(
    tmp_path_factory: pytest.TempPathFactory,
    late: list[int],
    size: int,
    start: int,
    length: int,
) -> None:
    # Events come nearly in order: each up to 30 s late.
    times = [max(number - by, 0) for number, by in enumerate(late)]
    events: list[Event] = [begin(SECOND)]
    events += [step(n, (t + 1) * SECOND) for n, t in enumerate(times)]
    folder = tmp_path_factory.mktemp("run")
    written(folder, *(events[at : at + size] for at in range(0, len(events), size)))
    with Run.open(folder) as run:
        found = steps_of(run, start=start, end=start + length)
        assert found == [n for n, t in enumerate(times) if start <= t < start + length]
        assert steps_of(run, start=start) == [n for n, t in enumerate(times) if t >= start]
        assert steps_of(run, end=start) == [n for n, t in enumerate(times) if t < start]


def test_a_summary_is_the_same_with_totals_and_without(tmp_path: Path) -> None:
    events: list[Event] = [begin(SECOND), samples.strategy()]
    events += [step(n, (n + 2) * SECOND) for n in range(10)]
    events += [Metric(time_ns=5, step=1, values={"loss": 0.5, "other": 2.0})]
    events += [Metric(time_ns=6, step=2, values={"loss": 0.25})]
    events += [Lost(time_ns=7, count=3, reason="why")]
    path = written(tmp_path, events[:4], events[4:])
    with Run.open(tmp_path) as run:
        quick = run.summary()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE totals")
    with Run.open(tmp_path) as run:
        assert run.summary() == quick
    assert (quick["steps"], quick["examples"], quick["lost"]) == (10, 20, 3)
    assert quick["metrics"] == {"loss": 0.25, "other": 2.0}
    assert quick["seconds"] == 10.0


def test_a_run_that_is_being_written_is_followed_to_its_end(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    recording = record(tmp_path)
    found: list[int] = []
    hundredth = threading.Event()

    def follow() -> None:
        with Run.open(tmp_path) as run:
            for event in run.follow("step"):
                assert isinstance(event, Step)
                found.append(event.step)
                if len(found) == 100:
                    hundredth.set()

    reader = threading.Thread(target=follow)
    reader.start()
    for number in range(100):
        recorder.emit(samples.step(number))
    assert hundredth.wait(30), "events that were stored must reach a reader while the run goes on"
    for number in range(100, 150):
        recorder.emit(samples.step(number))
    recording.close()
    reader.join(30)
    assert not reader.is_alive(), "following must end with the run"
    assert found == list(range(150))


def test_following_ends_where_another_run_took_the_place(tmp_path: Path) -> None:
    def recorded(number: int) -> RunFile:
        file = RunFile(tmp_path, "a run", overwrite=True)
        file.write([begin(0), step(number, SECOND)])
        return file

    first = recorded(1)
    with Run.open(tmp_path) as run:
        assert is_live(run)
        first.close()
        second = recorded(2)
        assert not is_live(run)
        assert [event.step for event in run.follow("step") if isinstance(event, Step)] == [1]
    with Run.open(tmp_path) as run:
        assert is_live(run)
    second.close()


def test_following_ends_with_killed_process_and_after_idle_time(tmp_path: Path) -> None:
    file = RunFile(tmp_path, "a run")
    file.write([begin(0), step(0, SECOND)])
    with closing(file._database), Run.open(tmp_path) as run:
        assert [e.step for e in run.follow("step", idle_seconds=0.05) if isinstance(e, Step)] == [0]
        file.abandon()  # as the end of its process does
        assert [e.step for e in run.follow("step") if isinstance(e, Step)] == [0]
