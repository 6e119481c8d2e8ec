from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError, RecordError, ValueShapeError
from distlab.events import Event, Lost, Metric, RecorderCost, RunEnd, Step, Unknown, sink
from distlab.events import Run as RunBegin
from distlab.folds import Folds
from distlab.profiling.prober import Prober
from distlab.recording import RingRecorder, Run, make_default, record
from tests.patience import LIMIT_SECONDS, wait_until
from tests.recording import processes, samples


def events_of(path: Path, kind: str | None = None) -> list[Event | Unknown]:
    """Returns a run's events without the recorder's own cost, which a slow machine adds."""
    with Run.open(path) as run:
        return [event for event in run.events(kind) if not isinstance(event, RecorderCost)]


def test_what_stood_before_is_part_of_it_and_what_passed_is_not(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    for event in (samples.strategy(), samples.placement(1), samples.placement(2)):
        recorder.emit(event)
    recorder.emit(samples.step(0))
    recorder.emit(samples.placement(1, "free"))
    with record(tmp_path / "first", total_steps=7):
        recorder.emit(samples.step(1))
    begin, *events, end = events_of(tmp_path / "first")
    assert events == [samples.strategy(), samples.placement(2), samples.step(1)]
    assert isinstance(begin, RunBegin)
    assert (begin.name, begin.total_steps, begin.platform) == ("first", 7, "cpu")
    assert [device.name for device in begin.devices] == [f"CPU:{n}" for n in range(8)]
    assert begin.devices[0].simulated
    assert begin.versions["jax"] == jax.__version__
    assert abs(begin.unix_ns - time.time_ns()) < 60e9
    assert isinstance(end, RunEnd)
    assert (end.status, end.message) == ("finished", "")


def test_recordings_may_be_nested(recorder: RingRecorder, tmp_path: Path) -> None:
    with record(tmp_path / "outer") as outer:
        recorder.emit(samples.step(0))
        with record(tmp_path / "inner"):
            recorder.emit(samples.step(1))
        outer.log(loss=1.5)
    inner_begin, *inner, inner_end = events_of(tmp_path / "inner")
    assert isinstance(inner_begin, RunBegin)
    assert inner_begin.name == "inner"
    assert inner == [samples.step(1)]
    assert isinstance(inner_end, RunEnd)
    outer_begin, *between, outer_end = events_of(tmp_path / "outer")
    assert isinstance(outer_begin, RunBegin)
    assert outer_begin.name == "outer"
    assert between[:2] == [samples.step(0), samples.step(1)]
    assert isinstance(between[2], Metric)
    assert len(between) == 3
    assert isinstance(outer_end, RunEnd)


def test_control_c_in_a_coroutine_ends_the_run_as_interrupted(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    async def train() -> None:
        with record(tmp_path):
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(train())
    end = events_of(tmp_path)[-1]
    assert isinstance(end, RunEnd)
    assert (end.status, end.message) == ("interrupted", "CancelledError")


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (ValueError("no luck"), "failed", "ValueError: no luck"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
        (SystemExit(0), "finished", ""),
        (SystemExit(3), "failed", "SystemExit: 3"),
    ],
)
def test_what_leaves_the_block_is_the_status_of_the_run(
    raised: BaseException, status: str, message: str, recorder: RingRecorder, tmp_path: Path
) -> None:
    with pytest.raises(type(raised)), record(tmp_path):
        raise raised
    end = events_of(tmp_path)[-1]
    assert isinstance(end, RunEnd)
    assert (end.status, end.message) == (status, message)


def test_numbers_are_logged_with_the_last_step(recorder: RingRecorder, tmp_path: Path) -> None:
    with record(tmp_path) as run:
        run.log(start=True)
        recorder.emit(samples.step(41))
        before = time.monotonic_ns()
        run.log(loss=jnp.float32(0.25), rate=jnp.ones(()) * 3)
        run.log(step=7, accuracy=0.5)
    metrics = [event for event in events_of(tmp_path) if isinstance(event, Metric)]
    assert [(m.step, m.values) for m in metrics] == [
        (-1, {"start": 1.0}),
        (41, {"loss": 0.25, "rate": 3.0}),
        (7, {"accuracy": 0.5}),
    ]
    assert before <= metrics[1].time_ns <= metrics[2].time_ns <= time.monotonic_ns()


def test_numbers_are_logged_by_a_dict(recorder: RingRecorder, tmp_path: Path) -> None:
    numbers = {"train/loss": 0.5}
    with record(tmp_path) as run:
        recorder.emit(samples.step(41))
        run.log(numbers)
        run.log(numbers, accuracy=0.25, step=jnp.int32(8))
        with pytest.raises(ValueShapeError, match=r"'train' with .* such as {\"train/loss\": l"):
            run.log({"train": {"loss": 0.5, "rate": 0.1}})
    metrics = [event for event in events_of(tmp_path) if isinstance(event, Metric)]
    assert [(m.step, m.values) for m in metrics] == [
        (41, {"train/loss": 0.5}),
        (8, {"train/loss": 0.5, "accuracy": 0.25}),
    ]


def test_without_a_path_numbers_stay_in_memory(recorder: RingRecorder) -> None:
    with record(None, name="try") as run:
        run.log(loss=2.0)
        assert run.path is None
    begin, metric, end = recorder.ring.since(0).events
    assert isinstance(begin, RunBegin)
    assert begin.name == "try"
    assert isinstance(metric, Metric)
    assert isinstance(end, RunEnd)


def test_the_ring_names_the_process_before_its_first_event(recorder: RingRecorder) -> None:
    recorder.emit(samples.step(0))
    begin, step = recorder.ring.since(0).events
    assert isinstance(begin, RunBegin)
    assert len(begin.devices) == 8
    assert step == samples.step(0)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/home/me/train.py", "train"),
        ("/home/me/trainer/__main__.py", "trainer"),
        ("-c", "session"),
        ("", "session"),
        ("/lib/ipykernel_launcher.py", "digits"),
    ],
)
def test_ring_is_named_by_script_package_or_notebook(
    monkeypatch: pytest.MonkeyPatch, program: str, name: str
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/digits.ipynb")
    ring = RingRecorder()
    ring.emit(samples.step(0))
    begin, _ = ring.ring.since(0).events
    assert isinstance(begin, RunBegin)
    assert begin.name == name


def test_unwritable_folder_is_refused_before_anything_ran(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(RecordError, match="can't be written: File exists"):
        record(taken)
    with pytest.raises(RecordError):
        record("/proc/distlab")
    assert recorder.ring.since(0).events == []


def overflow(recorder: RingRecorder, then: Callable[[], None]) -> None:
    """Emits more than 20 pages hold."""
    for number in range(1, 5_000):
        recorder.emit(samples.step(number))
    then()


def test_run_of_a_full_disk_has_its_end_and_counts_the_lost(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    recording = record(tmp_path)
    recorder.emit(samples.step(0))
    wait_until(lambda: any(True for _ in Run.open(tmp_path).events("step")), "the first step")
    database = recording._opened.writer.file._database  # type: ignore[union-attr]
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.warns(RuntimeWarning, match="full"):
        overflow(recorder, recording.close)
    with Run.open(tmp_path) as run:
        summary = run.summary()
        assert (summary["status"], summary["message"]) == ("finished", "")
        *_, told = run.events("lost")
    assert isinstance(told, Lost)
    assert re.match(rf"The last {told.count} events were not stored: .*full\.", told.reason)
    assert summary["lost"] == told.count
    assert summary["steps"] + told.count >= 5_000


def test_when_there_is_room_again_nothing_is_missing(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    recording = record(tmp_path)
    recorder.emit(samples.step(0))
    database = recording._opened.writer.file._database  # type: ignore[union-attr]
    database.execute("PRAGMA max_page_count=20")

    def wait_for_the_note() -> None:
        wait_until(
            lambda: any(isinstance(e, Lost) for e in recorder.ring.since(5_000).events), "the note"
        )

    with pytest.warns(RuntimeWarning, match="full"):
        overflow(recorder, wait_for_the_note)
    database.execute("PRAGMA max_page_count=1000000")
    recording.close()
    assert [e for e in events_of(tmp_path) if isinstance(e, Step)] == [
        samples.step(number) for number in range(5_000)
    ]


def test_thread_of_a_recording_may_emit_at_once(
    recorder: RingRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python may free a variable in a thread that begins, and waits until it has begun."""
    waited: list[bool] = []

    def make(*given: Any) -> Prober:
        thread = threading.Thread(target=recorder.emit, args=(samples.step(0),))
        thread.start()
        thread.join(LIMIT_SECONDS)
        waited.append(thread.is_alive())
        return Prober(*given)

    monkeypatch.setattr("distlab.recording.recorder.Prober", make)
    with record(tmp_path):
        pass
    assert waited == [False]


def test_functions_of_workers_count_as_steps(
    recorder: RingRecorder,
) -> None:
    assert recorder.newest_step() == -1
    recorder.emit(samples.closures(50))
    recorder.emit(samples.closures(3))
    assert recorder.newest_step() == 52
    recorder.emit(samples.step(7))
    assert recorder.newest_step() == 7


def test_recording_can_be_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISTLAB_RECORD", "off")
    assert make_default() is sink.NULL
    monkeypatch.setattr(sink, "in_force", sink.NULL)
    with record(tmp_path / "run") as run:
        run.log(loss=1.0)
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("DISTLAB_RECORD", "maybe")
    with pytest.raises(ArgumentValueError, match="DISTLAB_RECORD is on or off, got 'maybe'"):
        make_default()


def test_a_summary_says_what_the_run_was(recorder: RingRecorder, tmp_path: Path) -> None:
    with record(tmp_path, name="digits", total_steps=2) as run:
        recorder.emit(samples.strategy())
        recorder.emit(samples.step(0))
        recorder.emit(samples.step(1))
        run.log(loss=0.5)
        run.log(loss=0.25, accuracy=0.9)
        with Run.open(tmp_path) as reader:
            assert reader.live
            assert reader.summary()["status"] == "running"
    with Run.open(tmp_path) as reader:
        summary = reader.summary()
        assert not reader.live
    assert summary["name"] == "digits"
    assert summary["status"] == "finished"
    assert (summary["steps"], summary["examples"], summary["total_steps"]) == (2, 128, 2)
    assert summary["metrics"] == {"loss": 0.25, "accuracy": 0.9}
    assert summary["strategies"] == ["MirroredStrategy"]
    assert summary["devices"] == [f"CPU:{n}" for n in range(8)]


def test_recording_starts_no_devices_and_is_closed_at_the_end(tmp_path: Path) -> None:
    status, out, err = processes.finish(
        """
from distlab.devices import jax_internals
run = dl.record(sys.argv[1])
run.log(loss=1.0)
assert not jax_internals.backend_started()
dl.use_cpu_devices(3)
strategy = dl.MirroredStrategy()
for n in range(100): step(n)
""",
        str(tmp_path),
    )
    assert (status, out) == (0, ""), err
    begun = [event for event in events_of(tmp_path, "run") if isinstance(event, RunBegin)]
    assert [len(event.devices) for event in begun] == [0, 3]
    end = events_of(tmp_path)[-1]
    assert isinstance(end, RunEnd)
    assert end.status == "interrupted"
    assert "before the recording was closed" in end.message
    assert len(events_of(tmp_path, "step")) == 100


def test_forked_child_may_not_use_its_parents_recording(tmp_path: Path) -> None:
    status, out, err = processes.finish(
        """
import os
with dl.record(sys.argv[1]) as run:
    step(0)
    child = os.fork()
    if child == 0:
        refused = 0
        for n in range(1000, 2000): step(n)
        for verb in (run.log, run.capture):
            try:
                verb()
            except dl.errors.RecordError as error:
                refused += "forked" in str(error)
        run.close()
        os._exit(refused)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    step(1)
""",
        str(tmp_path),
    )
    assert (status, out.strip()) == (0, "2"), err
    events = events_of(tmp_path)
    assert [event.step for event in events if isinstance(event, Step)] == [0, 1]
    assert isinstance(events[-1], RunEnd)


def test_steps_after_a_recording_are_the_process_own(recorder: RingRecorder) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = strategy.experimental_distribute_dataset(dl.data.Dataset.range(6).batch(2))

    def step(x: jax.Array) -> jax.Array:
        total: jax.Array = dl.get_replica_context().all_reduce("SUM", x.sum())
        return total

    def train(batches: int) -> None:
        for _, batch in zip(range(batches), dataset, strict=False):
            strategy.run(step, (batch,))

    def seen() -> tuple[str, str, int, int, list[int], list[float]]:
        folds = Folds()
        while folds.read(recorder.ring):
            pass
        header, steps = folds.columns("header"), folds.columns("steps")["steps"]
        batches, reductions = folds.columns("batches"), folds.columns("reductions")
        counts = steps, batches["count"], reductions["count"], folds.columns("metrics")["last"]
        return header["name"], header["status"], *counts

    train(2)
    own, *counts = seen()
    assert counts == ["", 2, 2, [2], []]
    with dl.record(None, name="first") as recording:
        train(3)
        recording.log(loss=0.5)
    assert seen() == ("first", "finished", 3, 3, [3], [0.5])
    train(1)
    assert seen() == (own, "", 1, 1, [1], [])
