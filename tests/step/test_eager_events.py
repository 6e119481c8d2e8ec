"""A step that runs eagerly is recorded as a step, of a function that was not compiled."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.events import Compile, Step
from distlab.recording import RingRecorder

EAGERLY = dl.RunOptions(run_eagerly=True)


def test_eager_steps_count_and_name_their_function_once(recorder: RingRecorder) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    data = dl.data.Dataset.range(12).batch(4)

    def double(x: dl.PerReplica) -> object:
        return x * 2

    for x in strategy.experimental_distribute_dataset(data):
        strategy.run(double, args=(x,), options=EAGERLY)
    events = recorder.ring.since(0).events
    (compiled,) = [event for event in events if isinstance(event, Compile)]
    assert (compiled.mode, compiled.function) == ("eager", "double")
    assert compiled.source.startswith("test_eager_events.py:")
    assert compiled.trace_ns == compiled.compile_ns == 0
    steps = [event for event in events if isinstance(event, Step)]
    assert [step.program for step in steps] == [compiled.program] * 3
    assert [step.examples for step in steps] == [4, 4, 4]
    assert all(step.dispatched_ns > step.time_ns for step in steps)


def test_metrics_belong_to_the_eager_step_before(recorder: RingRecorder) -> None:
    strategy = dl.OneDeviceStrategy("CPU:0")
    for _ in range(2):
        strategy.run(lambda: jnp.ones(()), options=EAGERLY)
    first, second = [event for event in recorder.ring.since(0).events if isinstance(event, Step)]
    assert second.step == first.step + 1
    assert recorder.last_step == second.step


def test_a_step_that_fails_is_not_counted(recorder: RingRecorder) -> None:
    strategy = dl.OneDeviceStrategy("CPU:0")

    def fails() -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        strategy.run(fails, options=EAGERLY)
    assert not [event for event in recorder.ring.since(0).events if isinstance(event, Step)]
