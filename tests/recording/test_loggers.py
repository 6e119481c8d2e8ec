"""Loggers of a live recording: what they get, and what happens when they are slow or fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from distlab.errors import ArgumentTypeError
from distlab.events import Error, Lost, Metric, sink
from distlab.loggers import Logger, RunFacts
from distlab.recording import Ring, RingRecorder, Run, record
from distlab.recording.logger_thread import LoggerThread, close_all
from tests.patience import interrupt, wait_until
from tests.recording import samples


class Numbers(Logger):
    """Keeps the user's numbers, and how it ended."""

    def __init__(self) -> None:
        self.started: list[RunFacts] = []
        self.values: list[tuple[int, float]] = []
        self.ended: list[tuple[str, str]] = []
        self.threads: set[str] = set()

    def start(self, run: RunFacts) -> None:
        self.started.append(run)

    def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        self.threads.add(threading.current_thread().name)
        if "loss" in values:
            self.values.append((step, values["loss"]))

    def finish(self, status: str, message: str) -> None:
        self.ended.append((status, message))


def log(path: Path | None, loggers: list[Logger], steps: int = 1) -> None:
    """Records as many numbers."""
    with record(path, loggers=loggers) as run:
        for step in range(steps):
            run.log(step, loss=0.0)


def errors_of(path: Path) -> list[tuple[str, str, str]]:
    with Run.open(path) as run:
        found = [e for e in run.events("error") if isinstance(e, Error)]
    return [(e.where, e.type, e.message) for e in found]


def lost_of(path: Path) -> list[tuple[int, str]]:
    with Run.open(path) as run:
        return [(e.count, e.reason) for e in run.events("lost") if isinstance(e, Lost)]


def test_a_logger_gets_the_numbers_in_a_thread_of_its_own(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    logger = Numbers()
    with record(tmp_path / "first", total_steps=7, loggers=[logger]) as run:
        for step in range(3):
            recorder.emit(samples.step(step))
            run.log(loss=step / 2)
    (facts,) = logger.started
    assert (facts.name, facts.path, facts.total_steps) == ("first", tmp_path / "first", 7)
    assert abs(facts.unix_ns - time.time_ns()) < 60e9
    assert logger.values == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert logger.ended == [("finished", "")]
    assert logger.threads == {"distlab logger Numbers"}
    assert not [t for t in threading.enumerate() if "distlab logger" in t.name]


def test_a_logger_is_told_while_the_run_goes_on(recorder: RingRecorder) -> None:
    logger = Numbers()
    with record(None, loggers=[logger]) as run:
        run.log(0, loss=1.0)
        wait_until(lambda: bool(logger.values), "the number")
        assert logger.values == [(0, 1.0)]
        assert logger.ended == []


def test_an_exception_ends_the_logger_as_failed(recorder: RingRecorder) -> None:
    logger = Numbers()
    with pytest.raises(ValueError, match="no luck"), record(None, loggers=[logger]):
        raise ValueError("no luck")
    assert logger.ended == [("failed", "ValueError: no luck")]


def test_a_logger_may_be_used_again_and_needs_no_folder(recorder: RingRecorder) -> None:
    logger = Numbers()
    for number in range(2):
        with record(None, name="here", loggers=[logger]) as run:
            run.log(number, loss=0.0)
    assert logger.values == [(0, 0.0), (1, 0.0)]
    assert (logger.started[0].name, logger.started[0].path) == ("here", None)


def test_what_is_no_logger_is_refused(recorder: RingRecorder, tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="loggers is a list of loggers, got 'logs'"):
        record(tmp_path / "run", loggers="logs")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"derives from distlab.loggers.Logger, got a type"):
        record(tmp_path / "run", loggers=[Numbers])  # type: ignore[list-item]
    assert not (tmp_path / "run").exists()


def test_what_a_logger_raises_is_said_once_and_counted(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    class Unlucky(Numbers):
        def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
            if step in (1, 2):
                raise ConnectionError(f"no answer at {step}")
            super().log_scalars(step, values, unix_ns)

    logger, other = Unlucky(), Numbers()
    with pytest.warns(RuntimeWarning, match="raised ConnectionError: no answer at 1") as said:
        log(tmp_path, [logger, other], 4)
    assert sum(one.category is RuntimeWarning for one in said) == 1
    assert [step for step, _ in logger.values] == [0, 3]
    assert [step for step, _ in other.values] == [0, 1, 2, 3]
    assert logger.ended == [("finished", "")]
    first, last = errors_of(tmp_path)
    assert first == ("the logger Unlucky", "ConnectionError", "no answer at 1")
    assert last[:2] == first[:2]
    assert last[2].startswith("2 of ")
    assert last[2].endswith("calls raised, at last ConnectionError: no answer at 2")


@pytest.mark.parametrize("raised", [OSError("no server"), SystemExit(1)])
def test_a_logger_that_can_not_start_is_given_up(
    raised: BaseException, recorder: RingRecorder, tmp_path: Path
) -> None:
    class Absent(Numbers):
        def start(self, run: RunFacts) -> None:
            raise raised

    logger = Absent()
    with pytest.warns(RuntimeWarning, match=f"Absent raised {type(raised).__name__}"):
        log(tmp_path, [logger])
    assert (logger.values, logger.ended) == ([], [])
    assert [kind for _, kind, _ in errors_of(tmp_path)] == [type(raised).__name__]


class Slow(Numbers):
    """Waits in its first number until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.let_go = threading.Event(), threading.Event()

    def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        self.entered.set()
        assert self.let_go.wait(60)
        super().log_scalars(step, values, unix_ns)


def test_a_slow_logger_makes_nobody_wait_and_says_what_it_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = RingRecorder(Ring(capacity=256))
    monkeypatch.setattr(sink, "in_force", recorder)
    slow = Slow()
    run = record(None, loggers=[slow])
    run.log(0, loss=0.0)
    assert slow.entered.wait(60)
    for step in range(1, 2_001):  # while it waits, and returns at once
        run.log(step, loss=float(step))
    slow.let_go.set()
    with pytest.warns(RuntimeWarning, match="The logger Slow missed"):
        run.close()
    steps = [step for step, _ in slow.values]
    kept = recorder.ring.since(0).events
    (lost,) = (e for e in kept if isinstance(e, Lost))
    assert lost.reason == "The logger Slow missed events: it could not keep up with the events."
    assert steps == sorted(set(steps))
    assert steps[0] == 0
    assert steps[-1] == 2_000
    assert lost.count == 2_001 - len(steps) > 1_000


def test_closing_waits_for_a_stuck_logger_within_a_limit(
    recorder: RingRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distlab.recording.logger_thread._CLOSE_SECONDS", 0.2)
    slow = Slow()
    run = record(tmp_path, loggers=[slow])
    run.log(0, loss=0.0)
    assert slow.entered.wait(60)
    with pytest.warns(RuntimeWarning, match=r"Slow missed .* it had not ended 0\.2 s after"):
        run.close()
    assert [reason for _, reason in lost_of(tmp_path)] == [
        "The logger Slow missed events: it had not ended 0.2 s after the recording."
    ]
    slow.let_go.set()
    wait_until(lambda: bool(slow.ended), "the logger's end")
    assert slow.ended == [("finished", "")]


def test_who_waits_again_after_an_interrupt_waits_for_the_logger() -> None:
    ring, slow = Ring(), Slow()
    thread = LoggerThread(ring, slow, None)
    thread.announce(samples.run())
    ring.append(Metric(time_ns=1, step=0, values={"loss": 0.5}))
    assert slow.entered.wait(60)
    interrupt(lambda: close_all([thread], samples.end()))
    assert slow.ended == []
    slow.let_go.set()
    close_all([thread], samples.end())
    assert slow.ended == [("finished", "")]
