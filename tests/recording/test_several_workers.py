"""Several processes record one run: who owns the folder, whose clock counts, who took part."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import distlab as dl
from distlab.errors import RecordError, WorkerError
from distlab.events import DeviceSample, Run, StepReady, Strategy
from distlab.folds import Folds
from distlab.processes import group
from distlab.processes.group import Worker
from distlab.recording import agreed_steps, clocks, participant
from distlab.runs.run_file import RunFile
from tests.recorded_by_workers import DEVICES, STEPS

LIMIT_S = 60.0


class Meeting:
    """Processes of a test, which are threads: their texts, by name and number."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, int], str] = {}
        self.arrived = threading.Condition()

    def put(self, key: tuple[str, int], text: str) -> None:
        with self.arrived:
            self.texts[key] = text
            self.arrived.notify_all()

    def wait(self, key: tuple[str, int], seconds: float) -> str | None:
        with self.arrived:
            self.arrived.wait_for(lambda: key in self.texts, seconds)
            return self.texts.get(key)


class Group:
    """The others as one of them sees them, as `distlab.processes.group` declares it."""

    def __init__(self, meeting: Meeting, index: int, hosts: list[str]) -> None:
        self.meeting, self.index, self.count = meeting, index, len(hosts)
        self.workers = tuple(
            Worker(n, f"worker:{n}", host, 100 + n, 2) for n, host in enumerate(hosts)
        )
        self.generation = 3
        self.links = ()
        self.calls: Counter[str] = Counter()

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    @property
    def worker(self) -> Worker:
        return self.workers[self.index]

    def from_chief(self, name: str, text: str | None, timeout: float | None = None) -> str:
        if self.is_chief:
            self.meeting.put((name, 0), text or "")
            return text or ""
        found = self.meeting.wait((name, 0), min(timeout or LIMIT_S, LIMIT_S))
        if found is None:
            raise WorkerError("worker 0", "host", "It did not come in time.")
        return found

    def exchange(self, name: str, text: str, timeout: float | None = None) -> list[str]:
        del timeout
        self.calls[name] += 1
        place = f"{name}/{self.calls[name]}"
        self.meeting.put((place, self.index), text)
        found = [self.meeting.wait((place, n), LIMIT_S) for n in range(self.count)]
        return [text or "" for text in found]


def together(
    monkeypatch: pytest.MonkeyPatch, hosts: list[str], work: Callable[[Group], Any]
) -> list[Any]:
    """Calls a function once for each process, at the same time; returns results or errors."""
    meeting, own = Meeting(), threading.local()
    monkeypatch.setattr(group, "current", lambda: getattr(own, "group", None))

    def one(index: int) -> Any:
        own.group = Group(meeting, index, hosts)
        try:
            return work(own.group)
        except RecordError as error:
            return error

    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(one, range(len(hosts))))


def begin(folder: Path, *, overwrite: bool = False, all_do: bool = True) -> Callable[[Group], Any]:
    def work(processes: Group) -> Any:
        file, who = participant.open_run_file(folder, "a run", overwrite=overwrite, process=0)
        if all_do:
            processes.exchange("begun", "")  # the others know the folder by a file that is open
        file.close()
        return who

    return work


def test_each_process_has_file_and_first_one_owns_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for overwrite in (False, True):
        found = together(monkeypatch, ["a", "a", "a"], begin(tmp_path / "x", overwrite=overwrite))
        assert [(one.job, one.task, one.index, one.count, one.generation) for one in found] == [
            ("worker", n, n, 3, 3) for n in range(3)
        ]
        files = sorted(path.name for path in (tmp_path / "x").iterdir())
        assert files == [f"process-{n}.sqlite" for n in range(3)]
    with dl.Run.open(tmp_path / "x") as run:
        assert run.processes == (0, 1, 2)
        assert run.meta["processes"] == 3


def test_what_first_process_is_refused_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunFile(tmp_path, "older").close()
    first, second = together(monkeypatch, ["a", "a"], begin(tmp_path))
    assert "already holds one" in str(first)
    assert str(second).startswith("Worker 0 could not begin the run. A run folder holds one run")
    assert [path.name for path in tmp_path.glob("*.sqlite")] == ["process-0.sqlite"]


def test_a_worker_alone_is_told_that_the_first_one_begins_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participant, "_BEGIN_SECONDS", 0.05)

    def work(processes: Group) -> Any:
        return None if processes.is_chief else begin(tmp_path)(processes)

    _, refused = together(monkeypatch, ["a", "a"], work)
    assert 'worker 0, which has not called record("' in str(refused)
    assert "Call record in all workers" in str(refused)
    assert not list(tmp_path.iterdir())


def test_the_first_worker_may_record_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(processes: Group) -> Any:
        return begin(tmp_path, all_do=False)(processes) if processes.is_chief else None

    chief, _ = together(monkeypatch, ["a", "a"], work)
    assert (chief.index, chief.count) == (0, 2)


def test_clocks_of_machines_are_compared_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = {"a": 0, "b": 5_000_000_000_000}
    own = threading.local()
    monotonic_ns = time.monotonic_ns
    monkeypatch.setattr(clocks, "boot_id", lambda: own.host)
    monkeypatch.setattr(
        time, "monotonic_ns", lambda: monotonic_ns() - behind[getattr(own, "host", "a")]
    )

    def work(processes: Group) -> Any:
        own.host = processes.worker.host
        return begin(tmp_path)(processes)

    first, second, third = together(monkeypatch, ["a", "b", "a"], work)
    assert first.clock == third.clock == clocks.Clock(0, 0)
    assert {who.meeting for who in (first, second, third)} == {f"record {tmp_path}"}
    assert 0 < second.clock.error_ns < 30_000_000_000
    assert abs(second.clock.offset_ns - behind["b"]) <= second.clock.error_ns
    with dl.Run.open(tmp_path) as run:
        assert run.processes == (0, 1, 2)


def test_processes_of_one_boot_read_one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clocks.boot_id()

    def compared(processes: Any) -> clocks.Clock:
        return clocks.compared(processes, "x", LIMIT_S)

    found = together(monkeypatch, ["a", "container"], compared)
    assert found == [clocks.Clock(0, 0)] * 2


def test_clocks_are_compared_again_until_the_recording_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drifting, same = clocks.Clock(7, 1), clocks.Clock()
    answers: list[clocks.Clock | WorkerError]
    answers = [clocks.Clock(5, 1), WorkerError("worker 1", "host", "It is late."), same, drifting]
    names: list[str] = []

    def compared(processes: Any, name: str, timeout: float) -> clocks.Clock:
        names.append(name)
        answer = answers[min(len(names), len(answers)) - 1]
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    monkeypatch.setattr(clocks, "compared", compared)
    found: SimpleQueue[clocks.Clock] = SimpleQueue()
    processes: Any = Group(Meeting(), 1, ["a", "b"])
    watch = clocks.ClockWatch(processes, "x", found.put, every=0.01)
    try:
        noted = [found.get(timeout=LIMIT_S) for _ in range(2)]
    finally:
        watch.stop()
    assert noted == [clocks.Clock(5, 1), drifting]
    assert names == [f"x, {number}" for number in range(1, len(names) + 1)]


class Texts:
    """A key-value store."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def set(self, key: str, text: str) -> None:
        self.texts[key] = text

    def find(self, key: str) -> str | None:
        return self.texts.get(key)


def test_processes_capture_at_the_steps_that_the_chief_names() -> None:
    store = Texts()

    def of(index: int) -> agreed_steps.AgreedSteps:
        processes: Any = Group(Meeting(), index, ["a", "a"])
        processes.kv = store
        return agreed_steps.AgreedSteps(processes, 0)

    chief, other, late = of(0), of(1), of(1)
    assert chief.next(10) is None
    assert other.next(10) is None
    first = chief.next(11)
    assert first is not None
    assert first >= 11 + 32
    assert other.next(12) == first
    assert other.next(13) is None
    assert chief.next(10_000) is None
    second = chief.next(10_001)
    assert late.next(first + 1) == second


def test_a_program_of_one_process_agrees_with_nobody() -> None:
    assert agreed_steps.agreed_steps() is None
    assert participant.present() == participant.Participant()


def test_real_processes_record_one_run(workers_run: Path) -> None:
    names = [f"worker {p} CPU:{n}" for p in range(2) for n in range(DEVICES)]
    with dl.Run.open(workers_run) as run:
        assert run.processes == (0, 1)
        begun = [event for event in run.events("run") if isinstance(event, Run)]
        assert {(e.job, e.task, e.process_index, e.processes) for e in begun} == {
            ("worker", 0, 0, 2),
            ("worker", 1, 1, 2),
        }
        assert {e.clock_offset_ns for e in begun} == {0}
        owned = {e.process_index: [d.name for d in e.devices] for e in begun if e.devices}
        assert owned == {0: names[:DEVICES], 1: names[DEVICES:]}
        strategies = [event for event in run.events("strategy") if isinstance(event, Strategy)]
        assert [e.devices for e in strategies] == [names] * 2
        assert strategies[0].processes == [0] * DEVICES + [1] * DEVICES
        ready = [event for event in run.events("step_ready") if isinstance(event, StepReady)]
        assert {len(event.ready_ns) for event in ready} <= {DEVICES}
        samples = [e for e in run.events("device_sample") if isinstance(e, DeviceSample)]
        assert {len(event.busy_ns) for event in samples} <= {DEVICES}
        summary = run.summary()
        assert (summary["status"], summary["steps"], summary["replicas"]) == (
            "finished",
            STEPS,
            [8],
        )
        assert [program.steps for program in run.programs()] == [STEPS]
        assert not list(run.events("advice"))
        folds = Folds()
        while folds.read(run):
            pass
    workers = folds.columns("workers")
    assert workers["name"] == ["worker 0", "worker 1"]
    assert workers["steps"] == [STEPS, STEPS]
    assert workers["devices"] == [names[:DEVICES], names[DEVICES:]]
    assert folds.columns("steps")["steps"] == STEPS
    assert folds.columns("timeline")["device"] in ([], names)  # a busy machine may watch nothing
