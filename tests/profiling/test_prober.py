from __future__ import annotations

import msgspec
import pytest

from distlab.events import Capture
from distlab.profiling.prober import Schedule
from tests.advice.test_finders import capture

COST = 0.05
EVEN = msgspec.structs.replace(capture([9] * 4), work_ns=[10, 11, 10, 10])
SLOW = msgspec.structs.replace(EVEN, work_ns=[10, 11, 40, 12])
AWAITED = capture([20, 20, 98, 20])
OTHER = msgspec.structs.replace(EVEN, work_ns=[10, 41, 10, 12])


def captures(seconds: float, rate: list[tuple[float, float]], *found: Capture) -> list[float]:
    """The times of captures in a run whose steps have a rate from a time on."""
    times, now, steps = Schedule(), 0.0, 0.0
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


@pytest.mark.parametrize("slow", [SLOW, AWAITED])
def test_three_more_come_early_where_a_replica_seems_slow(slow: Capture) -> None:
    taken = captures(400, [(0, 100)], slow)
    assert taken[:4] == pytest.approx([0, 0.6, 1.2, 1.8])
    assert taken[4] == pytest.approx(20, abs=0.5)
    assert len(taken) * COST <= 0.011 * 400


@pytest.mark.parametrize("second", [OTHER, EVEN])
def test_one_that_finds_another_replica_ends_early_captures(second: Capture) -> None:
    assert captures(9, [(0, 100)], SLOW, second) == pytest.approx([0, 0.6])


def test_slower_steps_call_for_captures_and_faster_ones_for_none() -> None:
    slower = captures(19, [(0, 100), (7, 40)], EVEN)
    assert slower[:2] == pytest.approx([0, 5], abs=0.3)
    assert 7 < slower[2] < 9
    assert captures(11, [(0, 100), (7, 200)], EVEN) == pytest.approx([0, 5, 10], abs=0.5)
    assert captures(4.5, [(0, 100), (2, 0)], EVEN) == [0]
