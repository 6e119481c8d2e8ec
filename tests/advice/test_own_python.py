"""Short loops that their own Python slows down, from made-up events."""

from __future__ import annotations

import pytest

from distlab.advice import Advice, advise
from distlab.events import Copy, Event, OwnPython, StepReady
from tests.advice.test_finders import MS, beginning, ready, step
from tests.recording.samples import made


def loop(every_ms: list[float], seen_ms: float, *, late_ms: float | None = None) -> list[Event]:
    """Steps of 1 ms with so much of the program's own Python before each, as far as was seen."""
    events, called = beginning(2), 0
    for number, length in enumerate(every_ms):
        called += round(length * MS)
        end: StepReady = ready(number, called, [1.0, 1.0])
        if late_ms is not None:
            times = [called + round(late_ms * MS)] * 2
            end = StepReady(
                time_ns=times[0],
                step=number,
                strategy=0,
                ready_ns=times,
                resolution_ns=round(late_ms * MS),
            )
        events += [step(number, called), end]
    seen = OwnPython(
        time_ns=called, start_ns=0, stacks={"a.py:9 > a.py:5": round(seen_ms * MS)}, calls=[]
    )
    return [*events, seen]


def placed(events: list[Event], what: str, duration_ms: int) -> list[Event]:
    """A copy of 32 MB to the devices in each of the steps."""
    return [
        made(
            Copy,
            time_ns=one.time_ns - (duration_ms + 2) * MS,
            strategy=0,
            what=what,
            bytes=1 << 25,
            duration_ns=duration_ms * MS,
        )
        for one in events
        if isinstance(one, StepReady)
    ]


def found(events: list[Event]) -> list[Advice]:
    return [one for one in advise(events) if one.cause == "host_bound"]


@pytest.mark.parametrize(("steps", "every_ms"), [(60, 11.0), (25, 20.0), (60, 6.0), (24, 10.0)])
def test_a_short_loop_with_own_python_in_every_step_is_named(steps: int, every_ms: float) -> None:
    (one,) = found(loop([every_ms] * steps, 0.8 * steps * every_ms))
    assert one.source == "a.py:5"
    assert one.evidence["share"] == pytest.approx(1 - 0.1 / every_ms, abs=0.01)
    assert one.evidence["step_ms"] == pytest.approx(every_ms - 0.1, rel=0.06)


@pytest.mark.parametrize(
    ("every_ms", "seen_ms"),
    [
        ([11.0] * 15, 150),  # too few steps
        ([2.0] * 150, 250),  # too little in each
        ([5.0] * 21, 90),  # too short
        ([11.0] * 60, 100),  # distlab's calls, or others that were not seen
    ],
)
def test_short_loops_with_less_evidence_are_not(every_ms: list[float], seen_ms: float) -> None:
    assert found(loop(every_ms, seen_ms)) == []


def test_ends_that_are_seen_late_bound_the_time_in_flight() -> None:
    (one,) = found(loop([11.0] * 60, 500, late_ms=4.0))
    assert "the devices have work 36 % of the time" in one.text
    assert found(loop([11.0] * 60, 500, late_ms=8.0)) == []


@pytest.mark.parametrize(("every_ms", "placing_ms", "named"), [(11, 9, False), (20, 8, True)])
def test_placing_values_on_devices_is_no_own_python(
    every_ms: int, placing_ms: int, *, named: bool
) -> None:
    """Of 20 ms, the program's own Python takes 12, which is less than 60 %."""
    events = loop([float(every_ms)] * 60, 500)
    told = advise([*events, *placed(events, "values of half", placing_ms)])
    assert [one.cause for one in told] == (["host_bound"] if named else [])
    if named:
        assert told[0].evidence["share"] == pytest.approx((20 - 8 - 0.1) / 20, abs=0.01)


@pytest.mark.parametrize(("copy_ms", "told"), [(8, True), (1, False)])
def test_batches_on_the_host_are_named_where_placing_is_slow(copy_ms: int, *, told: bool) -> None:
    events = loop([11.0] * 60, 0)
    events += placed(events, "batch x of step", copy_ms)
    named = [(one.cause, one.subject, one.remedy) for one in advise(events)]
    remedy = "Use smaller elements: a smaller dtype, or fewer fields."
    assert named == ([("host_transfer", "batch x of step", remedy)] if told else [])
