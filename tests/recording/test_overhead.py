"""The overhead that a recording reports, checked against times taken from outside."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.events import RecorderCost
from distlab.recording import RingRecorder
from distlab.recording.overhead import SAMPLE, Overhead


def costs(recorder: RingRecorder) -> list[RecorderCost]:
    return [e for e in recorder.ring.since(0, 100_000).events if isinstance(e, RecorderCost)]


def test_events_and_times_are_those_of_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    reported: list[Any] = []
    recorded, windows = [0], [0]
    overhead = Overhead(reported.append, lambda: recorded[0], lambda: windows[0])
    overhead.sampling = True
    for nanoseconds in [100] * (SAMPLE - 1) + [10_000]:
        overhead.add_emit(nanoseconds)
    assert not overhead.sampling
    overhead.add_capture(5_000)
    for nanoseconds, line in ((2_000, "a.py:3"), (4_000, "a.py:9"), (3_000, "a.py:3")):
        overhead.add_log(nanoseconds, line)
    overhead.note_backlog(waiting=7, lost=2)
    recorded[0], windows[0], now[0] = 1_000, 30_000, 999_999_999
    overhead.report()
    assert reported == []  # the second is not over
    now[0] += 1
    overhead.report()
    (cost,) = reported
    assert (cost.start_ns, cost.time_ns, cost.events) == (0, 1_000_000_000, 1_000)
    # The median of the sample for each event that `log` did not lead to, and the windows.
    assert cost.emit_ns == 100 * 997 + 30_000
    assert (cost.log_ns, cost.log_source) == (9_000, "a.py:3")
    assert cost.sampled == SAMPLE
    assert (cost.capture_ns, cost.waiting, cost.lost) == (5_000, 7, 2)
    now[0] += 2_000_000_000
    recorded[0] += 1  # the event itself
    overhead.report()
    assert len(reported) == 1, "no events, so nothing is reported"


def test_what_it_says_of_callers_is_what_they_spend(
    recorder: RingRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    value = strategy.experimental_distribute_values_from_function(lambda _: jnp.ones(4))
    spent = [0]
    emit, watch = recorder.emit, recorder.watch

    def timed_emit(event: Any) -> None:
        began = time.thread_time_ns()
        emit(event)
        spent[0] += time.thread_time_ns() - began

    def timed_watch(*given: Any) -> None:
        began = time.thread_time_ns()
        watch(*given)
        spent[0] += time.thread_time_ns() - began

    def step(x: Any) -> Any:
        return x + 1

    monkeypatch.setattr("distlab.recording.overhead._EVERY_NS", 200_000_000)
    with dl.record(tmp_path / "run", probe=False):
        strategy.run(step, (value,))
        monkeypatch.setattr(recorder, "emit", timed_emit)
        monkeypatch.setattr(recorder, "watch", timed_watch)
        limit = time.monotonic() + 60
        while len(costs(recorder)) < 3 and time.monotonic() < limit:
            strategy.run(step, (value,))
    reported = costs(recorder)[1:]
    assert len(reported) >= 2
    # The timing takes time itself, and other threads may come in between: a factor, not percents.
    share = sum(cost.emit_ns for cost in reported) / spent[0]
    assert 0.1 < share < 3
    assert sum(cost.watcher_ns for cost in reported) > 0  # its windows last while Python is busy
    for cost in reported:
        length = cost.time_ns - cost.start_ns
        assert cost.events > 20
        assert 0 < cost.writer_ns < length
        assert cost.watcher_ns < length
        assert cost.emit_ns < length
