"""Events that travel to another process, which writes the run file."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from distlab.errors import RecordError
from distlab.events import Event, RunEnd, Step
from distlab.recording import Run
from distlab.runs.collector import Collector
from distlab.runs.run_file import being_written
from distlab.runs.sent_run_file import SentRunFile
from tests.launching.real_processes import wait_for
from tests.recording import samples


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector("127.0.0.1", tmp_path)
    yield made
    made.close()


def begin(collector: Collector, **given: Any) -> SentRunFile:
    address = ("127.0.0.1", collector.port)
    return SentRunFile(address, collector.key, Path("runs/x"), "x", **given)


def steps(count: int) -> list[Event]:
    return [samples.step(number) for number in range(count)]


def stored_steps(folder: Path) -> list[int]:
    with Run.open(folder / "runs/x") as run:
        return [event.step for event in run.events("step") if isinstance(event, Step)]


def test_two_processes_record_one_run_into_the_collectors_folder(
    collector: Collector, tmp_path: Path
) -> None:
    files = [begin(collector, process=n, processes=2) for n in range(2)]
    for process, file in enumerate(files):
        assert file.path == Path(f"runs/x/process-{process}.sqlite")
        assert file.write([samples.run(), *steps(3 + process)]) == []
        assert being_written(tmp_path / file.path)
        assert file.write([RunEnd(time_ns=99, status="finished")]) == []
        file.close()
        assert not being_written(tmp_path / file.path)
    with Run.open(tmp_path / "runs/x") as run:
        assert run.processes == (0, 1)
        assert run.summary()["status"] == "finished"
    assert stored_steps(tmp_path).count(2) == 2


def test_a_folder_is_refused_where_it_was_asked_for(collector: Collector) -> None:
    begin(collector).close()
    with pytest.raises(RecordError, match="already holds one"):
        begin(collector)
    begin(collector, overwrite=True).close()


def test_a_lost_connection_leaves_the_run_of_a_killed_process(
    collector: Collector, tmp_path: Path
) -> None:
    file = begin(collector)
    file.write([samples.run(), *steps(2)])
    with socket.socket(fileno=file._connection.fileno()) as link:
        link.shutdown(socket.SHUT_RDWR)
        for _ in range(2):
            with pytest.raises(OSError, match="events can't be sent"):
                file.write(steps(1))
        link.detach()
    wait_for(lambda: not being_written(tmp_path / file.path), "the end of the file")
    with Run.open(tmp_path / "runs/x") as run:
        assert run.summary()["status"] == "killed"
    assert stored_steps(tmp_path) == [0, 1]
    file.close()


def test_without_the_key_nothing_is_read(collector: Collector, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="which writes the run's files: digest sent was rejected"):
        SentRunFile(("127.0.0.1", collector.port), "guessed", Path("x"), "x")
    with socket.create_connection(("127.0.0.1", collector.port), 10) as stranger:
        stranger.settimeout(60)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            while stranger.recv(1_000):
                pass
    assert list(tmp_path.iterdir()) == []


def test_a_collector_that_is_gone_raises(tmp_path: Path) -> None:
    gone = Collector("127.0.0.1", tmp_path)
    file = begin(gone)
    file.write([samples.run()])
    gone.close()
    with pytest.raises(OSError, match="events can't be sent"):
        file.write(steps(1))
    file.close()
    assert not being_written(tmp_path / file.path)
    with pytest.raises(OSError, match="which writes the run's files"):
        begin(gone)
