"""When the recorder's captures come."""

from __future__ import annotations

import msgspec
import pytest

from distlab.events import Capture
from distlab.profiling.looking_again import LookingAgain, seems_slow

COST = 0.05


def profile(compute: list[int], waiting: list[int]) -> Capture:
    return Capture(
        time_ns=100,
        strategy=0,
        start_ns=0,
        steps=3,
        asked_by="recorder",
        devices=[f"CPU:{n}" for n in range(len(compute))],
        compute_ns=compute,
        waiting_ns=waiting,
        copy_ns=[0] * len(compute),
        idle_ns=[0] * len(compute),
        spans=[b""] * len(compute),
        spans_left_out=0,
        profile_bytes=1,
        cost_ns=1,
    )


EVEN = profile([10, 11, 10, 12], [5, 4, 5, 3])
SLOW = profile([10, 11, 40, 12], [30, 29, 1, 28])
OTHER = profile([10, 41, 12, 12], [30, 1, 29, 28])


def captures(seconds: float, rate: list[tuple[float, float]], *found: Capture) -> list[float]:
    """The times of captures in a run whose steps have a rate from a time on."""
    times, now, steps = LookingAgain(), 0.0, 0.0
    taken: list[float] = []
    for tick in range(round(seconds / 0.2)):
        now = tick * 0.2
        steps += 0.2 * next(one for begin, one in reversed(rate) if begin <= now)
        if times.is_due(now, round(steps)):
            times.taken(now, COST, found[len(taken) % len(found)])
            taken.append(now)
    return taken


def test_captures_take_a_hundredth_of_the_time() -> None:
    assert captures(31, [(0, 100)], EVEN) == pytest.approx([0, 5, 10, 15, 20, 25, 30], abs=0.3)


def test_where_a_replica_seems_slow_three_more_come_early_and_are_paid_back() -> None:
    taken = captures(400, [(0, 100)], SLOW)
    assert taken[:4] == pytest.approx([0, 0.6, 1.2, 1.8])
    assert taken[4] == pytest.approx(20, abs=0.5)
    assert len(taken) * COST <= 0.011 * 400


def test_one_more_that_tells_another_replica_or_none_ends_that() -> None:
    assert captures(9, [(0, 100)], SLOW, OTHER) == pytest.approx([0, 0.6])
    assert captures(9, [(0, 100)], SLOW, EVEN) == pytest.approx([0, 0.6])


def test_slower_steps_call_for_one_capture_and_faster_ones_for_none() -> None:
    slower = captures(19, [(0, 100), (7, 40)], EVEN)
    assert slower[:2] == pytest.approx([0, 5], abs=0.3)
    assert 7 < slower[2] < 8.5
    assert slower[3] == pytest.approx(15, abs=0.5)
    assert captures(11, [(0, 100), (7, 200)], EVEN) == pytest.approx([0, 5, 10], abs=0.5)


def test_steps_that_become_slower_again_and_again_call_for_two() -> None:
    again = captures(14, [(0, 400), (7, 200), (9, 100), (11, 50), (13, 25)], EVEN)
    assert [5 < one < 14.5 for one in again].count(True) == 2


def test_no_steps_call_for_none() -> None:
    assert captures(4.5, [(0, 100), (2, 0)], EVEN) == [0]


@pytest.mark.parametrize(
    ("found", "seems"),
    [
        (EVEN, None),
        (SLOW, 2),
        (profile([40, 10, 10, 10], [30, 30, 30, 30]), None),
        (profile([40, 10], [1, 30]), 0),
        (profile([40], [1]), None),
        (profile([0, 0, 0], [0, 0, 0]), None),
        (msgspec.structs.replace(EVEN, work_ns=[10, 20, 10, 10]), 1),
        (msgspec.structs.replace(EVEN, work_ns=[10, 11, 10, 10]), None),
    ],
)
def test_what_seems_slow_has_more_work_or_computes_longest_while_the_others_wait(
    found: Capture, seems: int | None
) -> None:
    assert seems_slow(found) == seems
