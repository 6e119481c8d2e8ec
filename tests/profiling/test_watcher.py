from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distlab.devices import jax_internals
from distlab.events import DeviceSample, Event, StepReady
from distlab.profiling.busy import StrategyActivity, covered_ns
from distlab.profiling.watcher import Watcher, plan
from distlab.recording import RingRecorder
from tests.patience import measured, wait_until
from tests.recording import samples

REPLICAS = 4


def spin(seconds: float, worked: list[tuple[int, int]]) -> Callable[[Any], Any]:
    """A callback that keeps its device busy for so long, and notes when."""

    def call(value: Any) -> Any:
        begin = time.monotonic_ns()
        time.sleep(seconds)
        worked.append((begin, time.monotonic_ns()))
        return value

    return call


class Program:
    """A step on four devices that takes a known time on each of them."""

    def __init__(self, *seconds: float) -> None:
        mesh = Mesh(np.array(jax.devices()[:REPLICAS]), ("replica",))
        self.split = NamedSharding(mesh, PartitionSpec("replica"))
        self.worked: list[list[tuple[int, int]]] = [[] for _ in seconds]
        calls = [spin(s, worked) for s, worked in zip(seconds, self.worked, strict=True)]

        def on_replica(value: Any) -> Any:
            shape = jax.ShapeDtypeStruct(value.shape, value.dtype)
            branches = [lambda v, c=call: jax.pure_callback(c, shape, v) for call in calls]
            return jax.lax.switch(jax.lax.axis_index("replica") % len(calls), branches, value)

        self.step = jax.jit(
            jax.shard_map(
                on_replica,
                mesh=mesh,
                in_specs=PartitionSpec("replica"),
                out_specs=PartitionSpec("replica"),
                check_vma=False,
            )
        )
        self.value = jax.device_put(np.zeros((REPLICAS, 1), np.float32), self.split)
        self.step(self.value).block_until_ready()

    def run(self, watcher: Watcher, steps: int, pause: float) -> list[tuple[int, int]]:
        """Takes steps one by one, with pauses between them.

        Returns:
          When each step was called, and when its result was there: devices can't
          have been busy at other times, however late the machine let them go on.
        """
        noted = []
        for number in range(steps):
            called = time.monotonic_ns()
            result = self.step(self.value)
            watcher.watch(3, number, called, result)
            result.block_until_ready()
            noted.append((called, time.monotonic_ns()))
            time.sleep(pause)
        return noted


def is_asleep(watcher: Watcher) -> bool:
    return watcher._asleep


def samples_of(events: list[Event]) -> list[DeviceSample]:
    return [event for event in events if isinstance(event, DeviceSample)]


def shares(events: list[Event]) -> list[float]:
    """Busy time over watched time of each device."""
    told = samples_of(events)
    watched = sum(sample.time_ns - sample.start_ns for sample in told)
    return [sum(s.busy_ns[d] for s in told) / watched for d in range(REPLICAS)]


@measured
def test_the_share_is_that_of_a_loop_with_a_known_one() -> None:
    busy = 0.03
    events: list[Event] = []
    watcher = Watcher(events.append)
    program = Program(busy)
    noted = program.run(watcher, 24, busy)
    whole = time.monotonic_ns() - noted[0][0]
    watcher.flush()
    least, most = 24 * busy * 1e9 / whole, sum(end - begin for begin, end in noted) / whole
    # Both are the same on a quiet machine; on a loaded one a callback ends late.
    assert all(least - 0.1 <= share <= most + 0.1 for share in shares(events))


@measured
def test_short_steps_are_sampled_and_the_share_holds() -> None:
    events: list[Event] = []
    watcher = Watcher(events.append)
    program = Program(0.002)
    noted = program.run(watcher, 100, 0.008)
    most = sum(end - begin for begin, end in noted) / (time.monotonic_ns() - noted[0][0])
    watcher.flush()
    assert all(0.1 < share < most + 0.1 for share in shares(events))
    assert len([event for event in events if isinstance(event, StepReady)]) >= 20


@measured
def test_each_device_has_its_own_share() -> None:
    events: list[Event] = []
    watcher = Watcher(events.append)
    Program(0.01, 0.06).run(watcher, 15, 0.0)
    watcher.flush()
    fast, slow, *others = shares(events)
    assert fast < 0.5 < 0.8 < slow
    assert others == pytest.approx([fast, slow], abs=0.1)
    ready = [event for event in events if isinstance(event, StepReady)]
    assert len(ready) >= 5
    for event in ready[1:]:
        assert event.ready_ns[1] - event.ready_ns[0] > 30e6
        assert 0 < event.resolution_ns < 60e6


def test_a_long_step_shows_as_busy_while_it_runs() -> None:
    events: list[Event] = []
    watcher = Watcher(events.append)
    program = Program(0.9)
    result = program.step(program.value)
    watcher.watch(3, 0, time.monotonic_ns(), result)
    result.block_until_ready()
    watcher.flush()
    first_end = min(end for _, end in program.worked[0][-REPLICAS:])
    during = [sample for sample in samples_of(events) if sample.time_ns < first_end]
    assert len(during) >= 2
    assert all(s.busy_ns == [s.time_ns - s.start_ns] * REPLICAS for s in during[1:])
    (ready,) = [event for event in events if isinstance(event, StepReady)]
    assert ready.step == 0
    assert ready.strategy == 3


def test_after_last_step_devices_show_idle_and_then_nothing() -> None:
    events: list[Event] = []
    watcher = Watcher(events.append)
    Program(0.01).run(watcher, 5, 0.0)
    wait_until(partial(is_asleep, watcher), "the watcher's sleep")
    idle = [sample.busy_ns == [0] * REPLICAS for sample in samples_of(events)]
    assert idle[-1]
    assert any(not one for one in idle[-6:])


def test_the_idle_time_before_a_new_step_is_told_with_it() -> None:
    events: list[Event] = []
    watcher = Watcher(events.append)
    program = Program(0.01)
    program.run(watcher, 3, 0.0)
    wait_until(partial(is_asleep, watcher), "the watcher's sleep")
    told = len(events)
    end = samples_of(events)[-1].time_ns
    ((called, _),) = program.run(watcher, 1, 0.0)
    watcher.flush()
    gap = samples_of(events[told:])[0]
    assert gap.busy_ns == [0] * REPLICAS
    assert gap.start_ns == end
    assert gap.time_ns == called


def test_results_that_are_donated_on_are_no_trouble() -> None:
    events: list[Event] = []
    watcher = Watcher(events.append)
    step = jax.jit(lambda value: jnp.tanh(value @ value), donate_argnums=0)
    value = jnp.zeros((200, 200))
    for number in range(500):
        value = step(value)
        watcher.watch(0, number, time.monotonic_ns(), value)
    value.block_until_ready()
    watcher.flush()
    told = samples_of(events)
    assert told
    assert all(0 <= s.busy_ns[0] <= s.time_ns - s.start_ns for s in told)
    assert not any(event.__class__.__name__ == "Lost" for event in events)


def test_results_are_let_go_of() -> None:
    import gc
    import weakref

    watcher = Watcher(lambda _: None)
    program = Program(0.001)
    results = []
    for number in range(60):
        result = program.step(program.value)
        watcher.watch(3, number, time.monotonic_ns(), result)
        result.block_until_ready()
        results.append(weakref.ref(result))
    del result
    watcher.flush()
    wait_until(partial(is_asleep, watcher), "the watcher's sleep")
    gc.collect()
    assert [ref() for ref in results if ref() is not None] == []


@pytest.mark.parametrize(
    ("interval", "used", "gapless"),
    [(2e-5, 0.4, False), (0.001, 0.05, False), (0.004, 0.015, True), (0.1, 0.9, True)],
)
def test_steps_are_watched_all_the_time_unless_that_costs_much(
    interval: float, used: float, gapless: bool
) -> None:
    chosen = plan(interval, used)
    assert (chosen.gap == 0) == gapless
    share = chosen.window / (chosen.window + chosen.gap)
    assert share == pytest.approx(1 if gapless else 0.02 / used, rel=0.5)
    assert plan(interval, used, 10.0).gap <= 1.0


def test_watching_costs_less_once_a_program_has_run_for_a_while() -> None:
    assert plan(0.004, 0.05, cost=0.02).gap == pytest.approx(0.08 * 1.5)
    assert plan(0.004, 0.05, cost=0.005).gap == pytest.approx(0.02 * 9)
    assert plan(2e-5, 0.4, 0.02).gap == pytest.approx(0.02 * 19)  # after a long window


def test_polls_come_shortly_before_the_end_of_a_step() -> None:
    program = Program(0.0)
    result = program.step(program.value)
    activity = StrategyActivity(3, result)
    ms = 1_000_000
    assert activity.next_poll_ns(0) == 0  # nothing is known yet: as soon as possible
    activity.add(0, 0, result)
    result.block_until_ready()
    activity.poll(8 * ms)  # done at some time in 8 ms: 4 ms are assumed
    activity.add(1, 10 * ms, result)
    assert activity.next_poll_ns(10 * ms) == pytest.approx(13.68 * ms, rel=1e-3)
    assert activity.next_poll_ns(round(13.9 * ms)) == pytest.approx(14.47 * ms, rel=1e-3)
    assert activity.next_poll_ns(18 * ms) == pytest.approx(20 * ms, rel=1e-3)  # overdue
    activity.poll(12 * ms)  # earlier than expected: the next one is, too
    activity.add(2, 12 * ms, result)
    assert activity.next_poll_ns(12 * ms) < 12 * ms + 3.6 * ms


@measured
def test_busy_times_agree_with_the_work_of_devices() -> None:
    """An independent measurement: each device notes when it begins and ends its work."""
    events: list[Event] = []
    watcher = Watcher(events.append)
    program = Program(*[0.004] * REPLICAS)
    begin = time.monotonic_ns()
    noted = program.run(watcher, 100, 0.002)
    end = time.monotonic_ns()
    watcher.flush()
    windows = [one for one in samples_of(events) if begin <= one.start_ns and one.time_ns <= end]
    known = sum(one.time_ns - one.start_ns for one in windows)
    assert known > 0.1 * (end - begin)
    most = sum(covered_ns(noted, one.start_ns, one.time_ns) for one in windows)
    for device, worked in enumerate(program.worked):
        least = sum(covered_ns(worked, one.start_ns, one.time_ns) for one in windows)
        busy = sum(one.busy_ns[device] for one in windows)
        assert least - 0.1 * known < busy < most + 0.1 * known


def test_compiling_does_not_count_as_busy(recorder: RingRecorder) -> None:
    program = Program(0.01)
    called = time.monotonic_ns() - 5_000_000_000  # the program took five seconds to compile
    result = program.step(program.value)
    handed_over = time.monotonic_ns()
    recorder.compiled(lambda **_: samples.compiled(), object())
    recorder.watch(3, 0, called, result)
    result.block_until_ready()
    recorder.watcher.flush()
    events = [e for e in recorder.ring.since(0).events if isinstance(e, DeviceSample)]
    assert events
    assert all(sample.start_ns >= handed_over for sample in events)


_DELETES = """
import subprocess
import sys
import time
import distlab as dl
import jax, jax.numpy as jnp
from distlab.profiling import watcher

dl.use_cpu_devices(8)
watcher._REST, watcher._COST = 0.0, 1.0  # watches all the time
strategy = dl.MirroredStrategy()
end = time.monotonic() + 1.5
with dl.record("run") as recording:
    while time.monotonic() < end:
        result = strategy.run(lambda: jnp.ones(2)).stacked
        recording.log(one=result[0, 0])
        result.delete()
print("alive")
"""


def test_results_may_be_deleted_while_watched_and_logged(tmp_path: Path) -> None:
    """JAX ends a process in which one thread asks whether an array is ready, and one deletes it."""
    done = subprocess.run(
        [sys.executable, "-c", _DELETES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]


def test_a_deleted_array_has_no_copy_for_another_thread() -> None:
    array = jnp.ones(2)
    own = jax_internals.for_another_thread(array)
    array.delete()
    assert own.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        jax_internals.for_another_thread(array)
