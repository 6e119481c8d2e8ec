"""Savings of remedies, from made-up events with exact times."""

from __future__ import annotations

import msgspec
import pytest

from distlab.advice import advise
from distlab.events import Compile, Copy, Event, OwnPython
from tests.advice.test_finders import MS, SECOND, capture, reduction, step, stepped
from tests.recording.samples import made


@pytest.mark.parametrize(("computing", "saved"), [(10, 0.030), (35, 0.015), (50, 0.0)])
def test_what_devices_compute_meanwhile_is_not_saved(computing: int, saved: float) -> None:
    """Steps of 50 ms, of which 30 ms copy an array while the devices compute."""
    events = stepped([[45.0, 45.0]] * 30)
    for number in range(30):
        begun = number * 50 * MS
        events.append(
            made(Copy, time_ns=begun + MS, strategy=0, bytes=1 << 22, duration_ns=30 * MS)
        )
    events.append(capture([2 * computing] * 2))
    (one,) = [one for one in advise(events) if one.cause == "host_transfer"]
    assert one.saves_s == pytest.approx(saved, abs=0.002)


@pytest.mark.parametrize(("copying", "stated"), [(2, False), (10, True)])
def test_of_short_copies_no_share_is_stated(copying: int, stated: bool) -> None:
    """Steps of 50 ms, in which an array is copied: around it there may be more."""
    events = stepped([[45.0, 45.0]] * 30)
    for begun in range(0, 30 * 50 * MS, 50 * MS):
        copied = made(Copy, time_ns=begun, strategy=0, bytes=1 << 22, duration_ns=copying * MS)
        events.append(copied)
    (one,) = [one for one in advise(events) if one.cause == "host_transfer"]
    assert ("of the loop's time" in one.text) == ("share" in one.evidence) == stated
    assert (one.saves_s > 0) == stated


def test_threads_that_overlap_save_no_more_than_a_step() -> None:
    """Steps of 50 ms, in which two threads copy for 40 ms each."""
    events = stepped([[45.0, 45.0]] * 30)
    for begun in range(0, 30 * 50 * MS, 50 * MS):
        for _ in range(2):
            copied = made(Copy, time_ns=begun, strategy=0, bytes=1 << 22, duration_ns=40 * MS)
            events.append(copied)
    (one,) = [one for one in advise(events) if one.cause == "host_transfer"]
    assert one.saves_s == pytest.approx(0.050, rel=0.01)


def test_small_copies_at_one_line_are_one_finding() -> None:
    """Steps of 50 ms, in which 60 columns of 1 kB take half a millisecond each."""
    events = stepped([[5.0, 5.0]] * 30)
    for begun in range(0, 30 * 50 * MS, 50 * MS):
        for column in range(60):
            events.append(
                made(
                    Copy,
                    time_ns=begun + column * MS // 2,
                    strategy=0,
                    what=f"batch c{column} of step",
                    bytes=1024,
                    duration_ns=MS // 2,
                    source="train.py:7",
                )
            )
    (one,) = [one for one in advise(events) if one.cause == "host_transfer"]
    assert one.subject == "batch c0 of step and 59 more"
    assert one.share == pytest.approx(0.6, abs=0.02)
    assert one.evidence["copy_ms"] == pytest.approx(30.0, abs=0.1)
    assert (one.evidence["bytes"], one.source) == (60 * 1024, "train.py:7")


def test_compiled_and_profiled_calls_do_not_count_as_usual() -> None:
    """Steps of 50 ms with 12 ms of reductions; one took 900 ms, and a profile made ten slow."""
    events = stepped([[5.0, 5.0]] * 60)
    for number in range(60):
        begun = number * 50 * MS
        slow = 900 if number == 5 else 30 if 20 <= number < 30 else 12
        events.append(reduction(begun + MS, slow * MS))
    events.append(capture([10, 10], length=480 * MS))
    (one,) = [one for one in advise(events) if one.cause == "large_reduction"]
    assert one.saves_s == pytest.approx(0.012, rel=0.05)


@pytest.mark.parametrize(
    ("cause", "own_ms", "saved"),
    [("new shapes", 0, 0.036), ("new shapes", 300, 0.066), ("new function", 300, 0.036)],
)
def test_a_recompilation_costs_its_call_and_own_compilations(
    cause: str, own_ms: int, saved: float
) -> None:
    """Ten steps with a program each: a call takes 40 ms, of which XLA compiles for 25 ms."""
    events: list[Event] = []
    for number in range(10):
        begun = SECOND + number * 100 * MS
        compiled = made(
            Compile,
            time_ns=begun + 35 * MS,
            program=number,
            strategy=0,
            function="step",
            cause=cause,
            changed="x: 1 -> 2",
            trace_ns=5 * MS,
            compile_ns=20 * MS,
            collectives=[],
        )
        called = msgspec.structs.replace(
            step(number, begun), program=number, dispatched_ns=begun + 40 * MS
        )
        events += [compiled, called]
    stack = f"train.py:9 > {OwnPython.COMPILES}"
    own = OwnPython(time_ns=3 * SECOND, start_ns=0, stacks={stack: own_ms * MS}, calls=[])
    (one,) = [one for one in advise([*events, own]) if one.cause == "recompilation"]
    assert one.saves_s == pytest.approx(saved, rel=0.01)
