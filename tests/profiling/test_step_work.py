"""The work of a step on each device is that of its operations, whenever the cores run them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distlab as dl
from distlab.folds.joining.members import Members
from distlab.folds.joining.parts import Profiles
from distlab.profiling.step_work import UNKNOWN, Operations, Program, StepWork, _times_a_step
from distlab.recording import RingRecorder
from tests.advice.test_finders import capture as made_up

MAIN = Program("jit_step", 1)


def profile(
    trips: Sequence[int],
    steps: int,
    *,
    begins: Sequence[int] | None = None,
    seed: int = 0,
    operations: Operations | None = None,
) -> Operations:
    """A loop with so many trips on each device, then an update and an all-reduce, in each step.

    Each device shares its core with others: durations are up to four times as long, at random.

    Args:
      trips: For each device.
      steps: The number of steps, the first and the last of which may be cut.
      begins: For each device, how many of its first operations the profile lacks.
      seed: Of the durations.
      operations: Receives them.
    """
    chance, found = random.Random(seed), Operations() if operations is None else operations
    for device, count in enumerate(trips):
        found.begin_thread()
        now = 0.0
        names = (["dot.1", "tanh_fusion"] * count + ["update_fusion", "all-reduce"]) * steps
        for name in names[begins[device] if begins else 0 :]:
            usual = {"dot.1": 1_000, "tanh_fusion": 100, "update_fusion": 300}.get(name, 5_000)
            # Most of them have a core for themselves, so that this is the median.
            length = usual * chance.choice([1, 1, 1, 1, 1, 2, 4])
            found.add(device, MAIN, name, (now, now + length))
            now += length + 10
    return found


@given(
    st.lists(st.integers(2, 6), min_size=2, max_size=6),
    st.integers(12, 20),
    st.integers(0, 1_000),
    st.data(),
)
def test_work_counts_the_operations_of_whole_steps(
    trips: list[int], steps: int, seed: int, data: st.DataObject
) -> None:
    begins = [data.draw(st.integers(0, 2 * count + 1)) for count in trips]
    work = profile(trips, steps, begins=begins, seed=seed).work(range(len(trips)))
    assert work.steps in {steps - 2, steps - 1}
    first = trips.index(min(trips))
    usual = (work.step_ns[first] - 300) / trips[first]
    assert usual == pytest.approx(1_100, rel=1.01)  # medians of few may be longer
    for count, own in zip(trips, work.step_ns, strict=True):
        assert (own - 300) / count == pytest.approx(usual, rel=0.05)


def test_devices_keep_the_order_asked_for() -> None:
    operations = profile([2, 9, 4], 20)
    assert operations.work([2, 0]) == StepWork([4_700, 2_500], 19)


def test_an_operation_that_consists_of_others_is_counted_by_them() -> None:
    operations = Operations()
    for device in range(2):
        operations.begin_thread()
        for number in range(4):
            begin = number * 1_000.0
            operations.add(device, MAIN, "while.3", (begin, begin + 900))
            for inner in range(3 + 2 * device):
                operations.add(
                    device, MAIN, "dot.1", (begin + inner * 100, begin + inner * 100 + 50)
                )
    assert operations.work([0, 1]) == StepWork([150, 250], 3)


@pytest.mark.parametrize(("runs", "steps"), [(1, 2), (5, 6)])
def test_operations_in_another_order_are_the_same_work(runs: int, steps: int) -> None:
    """XLA runs those of a step that do not depend on each other beside one another."""
    operations = Operations()
    for device in range(4):
        spans: list[tuple[float, int, str]] = []
        for number in range(steps):
            begin = 10_000.0 * number + 5_000
            spans.append((begin, 10, "mark.1"))
            # On device 3 those of the last step come before the one that bounds steps.
            first = begin - 4_000 if device == 3 and number == steps - 1 else begin + 100
            spans += [(first + 100 * run, 50, "dot.1") for run in range(runs)]
        operations.begin_thread()
        for begin, length, name in sorted(spans):
            operations.add(device, MAIN, name, (begin, begin + length))
    work = operations.work(range(4))
    assert work.step_ns == [10 + 50 * runs] * 4


def test_device_with_twice_the_runs_has_more_work() -> None:
    ran = np.array([[30.0], [61.0], [29.0], [31.0]])
    often = _times_a_step(ran, np.full(4, 3))
    assert often.tolist() == [[10], [pytest.approx(61 / 3)], [10], [10]]


def test_program_that_only_some_devices_run_is_no_work_of_step() -> None:
    operations = profile([2, 2], 10)
    operations.begin_thread()
    for number in range(100):
        operations.add(0, Program("jit_sum", 2), "add.1", (number * 100.0, number * 100.0 + 90))
    assert operations.work([0, 1]).step_ns == [2_500, 2_500]


def test_in_a_ragged_step_the_devices_run_programs_of_their_own() -> None:
    """As in `step/ragged_programs.py`, with one more program of all devices."""
    operations = Operations()
    for device, (number, length) in enumerate([(7, 100), (7, 100), (8, 300), (7, 100)]):
        operations.begin_thread()
        for begin in range(0, 5_000, 1_000):
            own = Program("jit_step", number)
            operations.add(device, own, "dot.1", (begin, begin + length))
            operations.add(device, MAIN, "add.1", (begin + 500, begin + 550))
    assert operations.work(range(4)) == StepWork([150, 150, 350, 150], 4)


@pytest.mark.parametrize("lost", [{1}, {1, 2}])
def test_branch_that_loses_its_core_in_few_steps_is_equal_work(
    lost: set[int],
) -> None:
    operations = Operations()
    for device in range(4):
        operations.begin_thread()
        for number in range(4):
            begin = number * 10_000.0
            waits = 3_000 * (device == 0 and number in lost)
            branch = "noise_fusion" if device else "mask_fusion"
            operations.add(device, MAIN, branch, (begin, begin + 500 + waits))
            operations.add(device, MAIN, "dot.1", (begin + 5_000, begin + 6_000))
    assert operations.work(range(4)).step_ns == [1_500] * 4


def test_waiting_in_each_step_is_work_and_waiting_twice_is_not() -> None:
    operations = Operations()
    for device in range(3):
        operations.begin_thread()
        for number in range(6):
            begin = number * 10_000.0
            # One of them lost its core in two steps, another one waits in each.
            waits = {1: 8_000 * (number in {2, 4}), 2: 400}.get(device, 0)
            operations.add(device, MAIN, "dot.1", (begin, begin + 100 + waits))
            operations.add(device, MAIN, "add.1", (begin + 9_000, begin + 9_050))
    assert operations.work(range(3)).step_ns == [150, 150, 550]


@pytest.mark.parametrize("steps", [0, 1])
def test_one_whole_step_is_the_fewest(steps: int) -> None:
    assert profile([2, 2], steps).work([0, 1]) == UNKNOWN
    assert profile([2, 2], 2).work([0, 1]).steps == 1


def test_trips_of_a_loop_are_not_taken_for_steps() -> None:
    one, _, two = profile([6, 6, 6], 2, begins=[0, 3, 5]).work([0, 1, 2]).step_ns
    assert one == two
    assert profile([6, 6, 6], 1, begins=[0, 3, 5]).work([0, 1, 2]) == UNKNOWN


def test_programs_of_single_devices_have_no_work_to_compare() -> None:
    operations = Operations()
    for device in range(3):
        operations.begin_thread()
        for number in range(9):
            operations.add(
                device,
                Program(f"jit_{device}", device),
                "dot.1",
                (number * 10.0, number * 10.0 + 9),
            )
    assert operations.work([1, 2]) == UNKNOWN


def test_one_device_and_one_that_is_idle_have_no_work_to_compare() -> None:
    assert profile([3], 9).work([0]) == UNKNOWN
    assert profile([3, 3], 9).work([0, 1, 2]) == UNKNOWN


def test_work_of_real_steps_has_the_proportions_of_their_loops(recorder: RingRecorder) -> None:
    trips = [3, 3, 6, 3]
    strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(4)])

    def step(x: jax.Array) -> jax.Array:
        context = dl.get_replica_context()
        own = jnp.array(trips)[context.replica_id_in_sync_group]
        y = jax.lax.fori_loop(0, own, lambda _, a: jnp.tanh(a @ a), x)
        return context.all_reduce("MEAN", y)

    value = strategy.experimental_distribute_values_from_function(lambda _: jnp.eye(256) * 0.5)
    strategy.run(step, (value,))
    with dl.record(None) as run:
        asked = run.capture(steps=20)
        for _ in range(20):
            value = strategy.run(step, (value,))
        found = asked.result(60)
    assert found.work_steps >= 10
    share = [own / found.work_ns[0] for own in found.work_ns]
    assert share == pytest.approx([count / trips[0] for count in trips], rel=0.05)


@pytest.mark.parametrize(("processes", "work"), [([0, 0], [5, 9]), ([0, 1], [])])
def test_work_that_several_processes_measured_is_not_compared(
    processes: list[int], work: list[int]
) -> None:
    part = msgspec.structs.replace(made_up([10, 20]), first_step=1, work_ns=[5, 9], work_steps=4)
    profiles, members = Profiles(), Members(0, processes)
    for process in set(processes):
        joined = list(profiles.add(process, part, members, set(processes)))
    assert [one.work_ns for one in joined] == [work]
    assert joined[0].work_steps == (4 if work else 0)
