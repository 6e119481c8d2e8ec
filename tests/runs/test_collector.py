"""Events that travel to another process, which writes the run file."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from distlab.errors import RecordError
from distlab.events import Event, Lost, Metric, RunEnd, Step
from distlab.recording import Run
from distlab.runs import collector as collectors
from distlab.runs.channel import Channel
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


def steps(count: int, first: int = 0) -> list[Event]:
    return [samples.step(number) for number in range(first, first + count)]


def stored_steps(folder: Path) -> list[int]:
    with Run.open(folder / "runs/x") as run:
        return [event.step for event in run.events("step") if isinstance(event, Step)]


def lose(file: SentRunFile) -> None:
    """Cuts the connection, as a network that fails."""
    assert file._channel is not None
    file._channel._link.shutdown(socket.SHUT_RDWR)


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


def test_what_the_folder_refuses_is_said_where_it_was_asked_for(collector: Collector) -> None:
    begin(collector).close()
    with pytest.raises(RecordError, match="already holds one"):
        begin(collector)
    begin(collector, overwrite=True).close()


def test_after_a_lost_connection_every_event_is_stored_once(
    collector: Collector, tmp_path: Path
) -> None:
    file = begin(collector)
    file.write([samples.run(), *steps(3)])
    lose(file)
    more = steps(3, first=3)
    with pytest.raises(OSError, match=r"."):
        file.write(more)
    file.write(more)
    file.close()
    assert stored_steps(tmp_path) == list(range(6))


def test_an_answer_that_is_lost_does_not_store_events_twice(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = begin(collector)
    file.write([samples.run()])
    receive = Channel.receive
    stored, own = threading.Event(), file._channel

    def lost(channel: Channel) -> bytes:
        message = receive(channel)
        if channel is own:
            stored.set()
            lose(file)
            raise ConnectionError("the answer is lost")
        return message

    monkeypatch.setattr(Channel, "receive", lost)
    first = steps(2)
    with pytest.raises(OSError, match="the answer is lost"):
        file.write(first)
    assert stored.is_set()
    file.write([*first, *steps(2, first=2)])  # the writer has more by now
    file.close()
    assert stored_steps(tmp_path) == [0, 1, 2, 3]


def test_large_batches_are_sent_in_parts(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distlab.runs.sent_run_file._MOST_AT_ONCE", 200)
    file = begin(collector)
    file.write([samples.run(), *steps(50)])
    lose(file)
    with pytest.raises(OSError, match=r"."):
        file.write(steps(50, first=50))
    file.write(steps(50, first=50))
    file.close()
    assert stored_steps(tmp_path) == list(range(100))


def test_an_event_that_can_not_be_encoded_is_reported(collector: Collector) -> None:
    file = begin(collector)
    wrong: Any = object()
    (lost,) = file.write([samples.run(), Metric(time_ns=1, step=0, values={"loss": wrong})])
    assert isinstance(lost, Lost)
    file.close()


def test_a_process_that_does_not_come_back_was_killed(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "_AWAY_SECONDS", 0.0)
    file = begin(collector)
    file.write([samples.run(), *steps(2)])
    lose(file)
    wait_for(lambda: not being_written(tmp_path / file.path), "the end of the file")
    assert Run.open(tmp_path / "runs/x").summary()["status"] == "killed"
    for _ in range(2):
        with pytest.raises(OSError, match=r"."):
            file.write(steps(1))
    assert stored_steps(tmp_path) == [0, 1]


def test_without_the_key_nothing_is_read(collector: Collector, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"closed the connection|reset"):
        SentRunFile(("127.0.0.1", collector.port), "guessed", Path("x"), "x")
    with socket.create_connection(("127.0.0.1", collector.port), 10) as stranger:
        stranger.settimeout(60)
        stranger.recv(32)
        stranger.sendall(b"\0" * 64)
        assert stranger.recv(64) == b""
    assert list(tmp_path.iterdir()) == []


def serving() -> int:
    return sum(one.name == "distlab collector" for one in threading.enumerate())


def test_silent_strangers_take_few_threads_and_keep_nobody_out(
    collector: Collector, tmp_path: Path
) -> None:
    before = serving()
    address = ("127.0.0.1", collector.port)
    with ExitStack() as strangers:
        for _ in range(3 * collectors._MOST_STRANGERS):
            stranger = strangers.enter_context(socket.create_connection(address, 10))
            stranger.settimeout(60)
            assert len(stranger.recv(32)) == 32  # it is served
        wait_for(lambda: serving() <= before + collectors._MOST_STRANGERS)
        file = begin(collector)
        file.write([samples.run(), *steps(2)])
        file.close()
    assert stored_steps(tmp_path) == [0, 1]
    wait_for(lambda: serving() <= before)


def cut_off(stranger: socket.socket) -> bool:
    """Sends a byte, and returns whether the other end has closed the connection."""
    try:
        stranger.sendall(b"\0")
        return stranger.recv(64) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_stranger_who_sends_a_byte_now_and_then_is_cut_off(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "_PROOF_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", collector.port), 10) as stranger:
        stranger.settimeout(0.1)
        stranger.recv(32)
        end = time.monotonic() + 30
        while not cut_off(stranger):
            assert time.monotonic() < end


class Full:
    """A listener of a process that has too many open files for a while."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.refusals = 2

    def accept(self) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listener.accept()

    def close(self) -> None:
        self._listener.close()


def test_collector_accepts_again_after_too_many_open_files(
    collector: Collector, tmp_path: Path
) -> None:
    full = Full(collector._listener)
    collector._listener = full  # type: ignore[assignment]
    begin(collector, process=0, processes=2).close()  # after it the thread meets the refusals
    file = begin(collector, process=1, processes=2)
    file.write([samples.run()])
    file.close()
    assert full.refusals == 0
    with Run.open(tmp_path / "runs/x") as run:
        assert run.processes == (0, 1)


def test_collector_that_is_gone_raises_within_connect_time(
    tmp_path: Path,
) -> None:
    gone = Collector("127.0.0.1", tmp_path)
    file = begin(gone)
    file.write([samples.run()])
    gone.close()
    events: Sequence[Event] = steps(1)
    for _ in range(2):
        with pytest.raises(OSError, match=r"."):
            file.write(events)
    file.close()
    assert not being_written(tmp_path / file.path)
    with socket.socket() as held:  # nobody listens there, and nobody else can
        held.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="which writes the run's files"):
            SentRunFile(held.getsockname(), "key", Path("x"), "x")
