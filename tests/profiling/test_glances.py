"""Between two windows, the calls of steps see which of those before are done."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest

from distlab.devices import selection
from distlab.events import Capture
from distlab.profiling.busy import StrategyActivity
from distlab.profiling.glances import Glance, Glances

MS = 1_000_000


class Output:
    """An output of a step that is done when it is told so."""

    is_fully_addressable = True

    def __init__(self, *, done: bool = False, deleted: bool = False) -> None:
        self.done, self.deleted = done, deleted

    def is_deleted(self) -> bool:
        return self.deleted

    def clone(self) -> Output:
        return self

    def is_ready(self) -> bool:
        if self.deleted:
            raise RuntimeError("Array has been deleted.")
        return self.done


def output(**state: bool) -> Any:
    return Output(**state)


def test_a_call_sees_which_steps_before_are_done() -> None:
    glances = Glances()
    first, second, third = output(), output(), output()
    glances.note(0, time.monotonic_ns(), first)
    glances.note(1, time.monotonic_ns(), second)
    first.done = True
    before = time.monotonic_ns()
    glances.note(2, before, third)
    one, two, three = glances.steps
    assert [one.step, two.step, three.step] == [0, 1, 2]
    assert one.start_ns < one.unready_ns < before <= one.ready_ns
    assert two.ready_ns == 0
    assert before <= two.unready_ns == one.ready_ns
    assert (one.result, two.result, three.result) == (None, second, third)
    assert glances.whole
    assert cast("Any", glances.newest) is third


def test_a_step_whose_result_was_donated_is_done_without_a_known_end() -> None:
    glances = Glances()
    result = output()
    glances.note(0, 0, result)
    result.deleted = True
    glances.note(1, 1, output())
    assert [(one.donated, one.result is None) for one in glances.steps] == [
        (True, True),
        (False, False),
    ]


def test_a_result_that_is_deleted_already_leaves_the_gap_unknown() -> None:
    glances = Glances()
    with pytest.raises(RuntimeError, match="deleted"):
        glances.note(0, 0, output(deleted=True))
    assert not glances.whole
    assert glances.newest is None
    glances.note(1, 1, output())
    assert [one.step for one in glances.steps] == [1]


def test_a_step_that_another_thread_calls_meanwhile_leaves_the_gap_unknown() -> None:
    entered, leave = threading.Event(), threading.Event()

    class Slow(Output):
        def clone(self) -> Output:
            entered.set()
            assert leave.wait(60)
            return self

    glances = Glances()
    slow: Any = Slow()
    other = threading.Thread(target=glances.note, args=(0, 0, slow))
    other.start()
    assert entered.wait(60)
    glances.note(1, 1, output())
    leave.set()
    other.join(60)
    assert not glances.whole
    assert [one.step for one in glances.steps] == [0]


def test_of_short_steps_one_of_the_last_milliseconds_is_kept() -> None:
    glances = Glances()
    for number in range(10):
        glances.keep_newest(number, number * 2 * MS, output())
    assert [one.step for one in glances.steps] == [9]
    assert not glances.whole


def test_steps_of_a_long_gap_are_bounded() -> None:
    glances = Glances()
    for number in range(3_000):
        glances.note(number, number, output(done=True))
    assert len(glances.steps) <= 2_001
    assert not glances.whole


def glance(step: int, start: int, unready: int, ready: int) -> Glance:
    """A step that is done, in milliseconds."""
    made = Glance(step, start * MS, output())
    made.unready_ns, made.ready_ns, made.result = unready * MS, ready * MS, None
    return made


def passed(*steps: Glance) -> Glances:
    glances = Glances()
    glances._done.extend(steps)
    return glances


@pytest.fixture
def activity() -> StrategyActivity:
    """One device, whose watched step took 4 ms."""
    made = StrategyActivity(3, jnp.zeros(2))
    made.add(0, 0, jax.block_until_ready(jnp.zeros(2)))
    made.poll(8 * MS)  # done at some time in 8 ms: 4 ms are assumed
    made.close_window(0, 10 * MS)
    return made


def test_a_step_of_a_gap_ends_after_its_usual_duration(activity: StrategyActivity) -> None:
    events = activity.pass_gap(passed(glance(1, 10, 10, 20), glance(2, 20, 20, 30)), 30 * MS)
    assert events is not None
    assert [(e.step, e.ready_ns, e.resolution_ns, e.estimated) for e in events] == [
        (1, [14 * MS], 10 * MS, True),
        (2, [24 * MS], 10 * MS, True),
    ]
    assert activity.close_window(10 * MS, 30 * MS) == [8 * MS]


def test_it_ends_when_it_was_seen_to(activity: StrategyActivity) -> None:
    # The first took longer than usual, the second less.
    events = activity.pass_gap(passed(glance(1, 10, 17, 18), glance(2, 18, 18, 20)), 30 * MS)
    assert events is not None
    assert [e.ready_ns for e in events] == [[17 * MS], [20 * MS]]
    assert activity.close_window(10 * MS, 30 * MS) == [9 * MS]


def test_steps_that_wait_for_those_before_begin_when_these_end(activity: StrategyActivity) -> None:
    ahead = [glance(number, 10 + number, 10 + number, 30) for number in (1, 2, 3)]
    events = activity.pass_gap(passed(*ahead), 30 * MS)
    assert events is not None
    assert [e.ready_ns for e in events] == [[15 * MS], [19 * MS], [23 * MS]]
    assert activity.close_window(10 * MS, 30 * MS) == [12 * MS]


def test_a_step_still_in_flight_is_watched_on(activity: StrategyActivity) -> None:
    glances = Glances()
    running = output()
    glances.note(1, 20 * MS, running)
    assert activity.pass_gap(glances, 22 * MS) == []
    assert activity.close_window(10 * MS, 22 * MS) == [2 * MS]
    assert activity.in_flight == 1


def test_what_is_not_known_is_not_told(activity: StrategyActivity) -> None:
    unknown = passed(glance(1, 10, 10, 20))
    unknown.whole = False
    assert activity.pass_gap(unknown, 30 * MS) is None
    nothing_watched = StrategyActivity(3, jnp.zeros(2))
    assert nothing_watched.pass_gap(passed(glance(1, 10, 10, 20)), 30 * MS) is None


def test_a_profile_bounds_the_usual_duration_of_a_step_that_waits_for_none(
    activity: StrategyActivity,
) -> None:
    """Where Python keeps its lock, the ends of watched steps are seen late."""
    activity.profiled(
        Capture(
            time_ns=100 * MS,
            strategy=3,
            start_ns=0,
            steps=5,
            asked_by="recorder",
            devices=[selection.name(device) for device in activity.devices],
            compute_ns=[8 * MS],
            waiting_ns=[2 * MS],
            copy_ns=[0],
            idle_ns=[90 * MS],
            spans=[b""],
            spans_left_out=0,
            profile_bytes=1,
            cost_ns=1,
        )
    )
    alone = glance(1, 10, 10, 20)
    queued = [glance(2, 20, 20, 30), glance(3, 21, 21, 40)]
    seen_later = glance(4, 40, 48, 50)
    events = activity.pass_gap(passed(alone, *queued, seen_later), 50 * MS)
    assert events is not None
    ends = [e.ready_ns[0] / MS for e in events]
    assert ends == [12.5, 22.5, 26.5, 48.0]  # 1.25 x 2 ms, but 4 ms after another step
