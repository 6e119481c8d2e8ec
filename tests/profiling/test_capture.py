"""Captures and device shares, checked against known work and against each other."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.profiler import TraceAnnotation

import distlab as dl
from distlab import events
from distlab.errors import ArgumentValueError, CaptureError, RecordError
from distlab.folds import Folds
from distlab.folds.devices import computing
from distlab.profiling import capture
from distlab.profiling.spans import read_spans
from distlab.recording import RingRecorder
from tests.patience import measured
from tests.recording import processes

REPLICAS = 4
SECONDS = 60


def two_speeds(slow: int, *, together: bool, work: int = 30) -> Callable[[Any], Any]:
    """A step in which one replica does 20 times the work of each other one."""

    def step(x: Any) -> Any:
        context = dl.get_replica_context()
        times = jnp.where(context.replica_id_in_sync_group == slow, 20 * work, work)
        y = jax.lax.fori_loop(0, times, lambda _, a: jnp.tanh(a @ a), x)
        return context.all_reduce("MEAN", y) if together else y

    return step


class Loop:
    """Runs steps one after another; each works on what the one before returned."""

    def __init__(self, step: Callable[[Any], Any], size: int = 64) -> None:
        self.strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])
        self.step = step
        self.value = self.strategy.experimental_distribute_values_from_function(
            lambda _: jnp.eye(size) * 0.5
        )
        self.run(1)

    def run(self, steps: int, *, one_by_one: bool = False) -> None:
        for _ in range(steps):
            self.value = self.strategy.run(self.step, (self.value,))
            if one_by_one:
                jax.block_until_ready(self.value)
        jax.block_until_ready(self.value)


def shares(capture: events.Capture, of: str) -> list[float]:
    whole = capture.time_ns - capture.start_ns
    return [part / whole for part in getattr(capture, of)]


@measured
def test_the_replica_that_others_wait_for_computes_and_they_wait(
    recorder: RingRecorder,
) -> None:
    slow = 2
    loop = Loop(two_speeds(slow, together=True))
    with dl.record(None) as run:
        asked = run.capture(steps=10)
        loop.run(10)
        capture = asked.result(SECONDS)
    assert capture.steps == 10
    assert capture.asked_by == "user"
    assert capture.devices == [f"CPU:{n}" for n in range(REPLICAS)]
    compute, waiting = shares(capture, "compute_ns"), shares(capture, "waiting_ns")
    assert np.argmax(compute) == slow
    assert np.argmin(waiting) == slow
    assert compute[slow] > 3 * max(c for n, c in enumerate(compute) if n != slow)
    assert min(w for n, w in enumerate(waiting) if n != slow) > 0.3 > waiting[slow]
    for replica in range(REPLICAS):
        parts = [
            getattr(capture, f"{part}_ns")[replica]
            for part in ("compute", "waiting", "copy", "idle")
        ]
        assert min(parts) >= 0
        assert sum(parts) == capture.time_ns - capture.start_ns
        rows = np.frombuffer(capture.spans[replica], "<i8").reshape(-1, 3)
        assert rows[rows[:, 2] == 0, 1].sum() == parts[0]
        assert (rows[1:, 0] >= rows[:-1, 0] + rows[:-1, 1]).all()
    assert any(e is capture for e in recorder.ring.since(0).events)


@pytest.mark.parametrize("basis", ["ready", "profile"])
@measured
def test_device_samples_agree_with_the_profiler_on_two_speeds(
    basis: str, recorder: RingRecorder
) -> None:
    told, profiled = shares_told_and_profiled(basis, recorder)
    if basis == "profile":
        assert told == pytest.approx(profiled, abs=0.1)
    # Ready times count what a busy machine lets a step wait as well: up to 0.15 was seen.
    others = [n for n in range(REPLICAS) if n != 1]
    assert all(profiled[n] - 0.1 < told[n] < profiled[n] + 0.4 for n in others)
    assert np.argmax(told) == np.argmax(profiled) == 1


def shares_told_and_profiled(basis: str, recorder: RingRecorder) -> tuple[list[float], list[float]]:
    """Busy shares of four devices, replica 1 being slow, in relation to the slowest."""
    slow = 1
    # Long steps, so that handing one over is no part of what is compared.
    loop = Loop(two_speeds(slow, together=False, work=50), size=128)
    # With one step at a time ready times are enough. With 16 in flight the steps of fast CPU
    # devices wait for threads that the slow one keeps, and only a profile tells.
    one_by_one = basis == "ready"
    with dl.record(None) as run:
        begin_ns = time.monotonic_ns()
        if one_by_one:
            loop.run(15, one_by_one=True)
        end_ns = time.monotonic_ns()
        asked = run.capture(steps=4)
        loop.run(4, one_by_one=one_by_one)
        capture = asked.result(SECONDS)
        if not one_by_one:
            begin_ns = time.monotonic_ns()
            loop.run(45)
            end_ns = time.monotonic_ns()
    samples = [
        e
        for e in recorder.ring.since(0, 100_000).events
        if isinstance(e, events.DeviceSample)
        and e.strategy == loop.strategy.number
        and e.start_ns >= begin_ns
        and e.time_ns <= end_ns
    ]
    if {s.basis for s in samples} != {basis} or not any(any(s.busy_ns) for s in samples):
        return [0.0] * REPLICAS, [1.0] * REPLICAS  # the watcher had no time meanwhile
    watched = sum(s.time_ns - s.start_ns for s in samples)
    told = [sum(s.busy_ns[d] for s in samples) / watched for d in range(REPLICAS)]
    parts = (shares(capture, f"{part}_ns") for part in ("compute", "waiting", "copy"))
    profiled = [sum(of_device) for of_device in zip(*parts, strict=True)]
    # In relation to the slowest, as both have moments between steps of their own.
    told = [share / max(told) for share in told]
    profiled = [share / max(profiled) for share in profiled]
    return told, profiled


@pytest.mark.slow
def test_captures_exclude_each_other_and_the_profiler_waits(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    loop = Loop(two_speeds(0, together=True))
    with dl.record(None) as run:
        asked = run.capture(steps=3)
        with pytest.raises(CaptureError, match="Only one capture"):
            run.capture()
        loop.run(3)
        jax.profiler.start_trace(str(tmp_path))  # waits for the capture, and does not fail
        assert asked.result(SECONDS).steps == 3
        with pytest.raises(CaptureError, match=r"jax\.profiler"):
            run.capture()
        jax.profiler.stop_trace()
        asked = run.capture(steps=1)
        loop.run(1)
        assert asked.result(SECONDS).steps == 1


def test_capture_without_steps_fails_and_frees_the_profiler(
    recorder: RingRecorder,
) -> None:
    loop = Loop(two_speeds(0, together=True))
    with dl.record(None) as run:
        with pytest.raises(CaptureError, match=r"none was run within 0\.05 s"):
            run.capture(steps=2, seconds=0.05).result(SECONDS)
        asked = run.capture(steps=50, seconds=0.5)
        loop.run(2)
        assert asked.result(SECONDS).steps == 2
    errors = [e for e in recorder.ring.since(0).events if isinstance(e, events.Error)]
    assert [(e.where, e.type) for e in errors] == [("capture", "CaptureError")]


def test_capture_of_a_recording_without_steps_fails(
    recorder: RingRecorder,
) -> None:
    with dl.record(None) as run:
        asked = run.capture(seconds=500)
    with pytest.raises(CaptureError, match=r"none was run until the recording ended\."):
        asked.result(SECONDS)


def test_a_recording_that_ends_tells_what_its_capture_has(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    loop = Loop(two_speeds(0, together=True))
    with dl.record(tmp_path / "run", probe=False) as run:
        run.capture(steps=1_000, seconds=500)
        loop.run(3)
    with dl.Run.open(tmp_path / "run") as stored:
        captures = [e for e in stored.events("capture") if isinstance(e, events.Capture)]
    assert [c.steps for c in captures] == [3]


def test_misuse_is_refused(recorder: RingRecorder) -> None:
    with dl.record(None) as run:
        with pytest.raises(ArgumentValueError, match="steps must be a whole number"):
            run.capture(0)
        with pytest.raises(ArgumentValueError, match="seconds must be a positive number"):
            run.capture(seconds=-1)
    with pytest.raises(RecordError, match="until it is closed"):
        run.capture()


def test_nothing_is_traced_any_more_after_a_capture(recorder: RingRecorder) -> None:
    """While a profile runs, a trivial step takes 3 times as long."""
    loop = Loop(two_speeds(0, together=True))
    with dl.record(None) as run:
        assert not TraceAnnotation.is_enabled()
        asked = run.capture(steps=5)
        assert TraceAnnotation.is_enabled()
        loop.run(5)
        asked.result(SECONDS)
        assert not TraceAnnotation.is_enabled()


@measured
def test_a_recording_to_a_file_takes_a_glance_by_itself(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    slow = 3
    loop = Loop(two_speeds(slow, together=True))
    limit = time.monotonic() + SECONDS
    before = recorder.ring.since(0).cursor
    with dl.record(tmp_path / "run", overwrite=True):
        while time.monotonic() < limit:
            loop.run(10)
            found = [e for e in recorder.ring.since(before).events if isinstance(e, events.Capture)]
            if found:
                break
    assert [capture.asked_by for capture in found] == ["recorder"]
    assert np.argmin(found[0].waiting_ns) == slow


def test_a_users_capture_ends_the_recorders_and_takes_its_place(recorder: RingRecorder) -> None:
    loop = Loop(two_speeds(0, together=True))
    with dl.record(None) as run:
        for _ in range(3):
            own = recorder.capturer.start(3, SECONDS, "recorder")
            asked = run.capture(steps=2)
            with pytest.raises(CaptureError, match="needs steps"):
                own.result(SECONDS)
            loop.run(2)
            assert asked.result(SECONDS).asked_by == "user"


def test_a_wait_for_the_recorders_capture_has_a_limit(
    recorder: RingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = threading.Event()
    spans = read_spans

    def slowly(*profile: Any) -> Any:
        read.wait(SECONDS)
        return spans(*profile)

    monkeypatch.setattr(capture, "read_spans", slowly)
    monkeypatch.setattr(capture, "_PROBE_SECONDS", 0.05)
    loop = Loop(two_speeds(0, together=True))
    with dl.record(None) as run:
        own = recorder.capturer.start(1, SECONDS, "recorder")
        loop.run(1)
        with pytest.raises(CaptureError, match=r"waited 0\.05 s for the recorder's own"):
            run.capture(steps=2)
        read.set()
        own.exception(SECONDS)
        asked = run.capture(steps=2)
        loop.run(2)
        assert asked.result(SECONDS).asked_by == "user"


def test_a_child_process_can_profile_although_its_parent_was() -> None:
    code, out, err = processes.finish(
        """
import os, warnings
from distlab.devices import jax_internals
with jax_internals.profiler_reserved() as free:
    assert free
    warnings.simplefilter("ignore")  # JAX warns of forks: here the child computes nothing
    child = os.fork()
    if child == 0:
        with jax_internals.profiler_reserved() as free:
            os._exit(0 if free else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert (code, out.strip()) == (0, "0"), err
    assert os.getpid()


def test_equal_work_has_equal_bars_as_the_capture_shares_it(tmp_path: Path) -> None:
    loop = Loop(two_speeds(-1, together=True))
    with dl.record(tmp_path / "run", probe=False) as recording:
        future = recording.capture(steps=5)
        loop.run(40, one_by_one=True)
        taken = future.result(SECONDS)
    folds = Folds()
    with dl.Run.open(tmp_path / "run") as run:
        folds.read(run)
    devices = folds.columns("devices")
    bars = computing(devices["mean"], devices["computes"])
    assert bars.max() < 1.15 * bars.min()
    spent = np.array([taken.compute_ns, taken.waiting_ns, taken.copy_ns], float).sum(axis=1)
    assert bars.mean() / devices["mean"].mean() == pytest.approx(spent[0] / spent.sum(), rel=0.01)
