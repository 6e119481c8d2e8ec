"""A share is about the steps that its advice names: their calls, and their time."""

from __future__ import annotations

import msgspec
import pytest

from distlab.advice import Advice, advise
from distlab.events import Copy, Event, Reduction, Sharding
from tests.advice.test_finders import MS, beginning, step
from tests.recording.samples import made
from tests.synthetic import compiled

STEPS = 300
SLOW_UNTIL = 150
A_STEP = 50 * MS


def copied(number: int) -> Copy:
    """An array that takes most of the early steps, and little of the later ones."""
    return made(
        Copy,
        time_ns=number * A_STEP + MS,
        strategy=0,
        bytes=1 << 22,
        duration_ns=(40 if number < SLOW_UNTIL else 5) * MS,
    )


def reduced(number: int, call: int, *, algorithm: str) -> Reduction:
    """One of 40 reductions in a step, which take half a millisecond each."""
    return made(
        Reduction,
        time_ns=number * A_STEP + 20 * MS + call * MS // 2,
        strategy=0,
        op="SUM",
        algorithm=algorithm,
        bytes=256,
        duration_ns=MS // 2,
        array=40 * number + call,
        call=40 * number + call,
    )


def told(events: list[Event], cause: str) -> Advice:
    (one,) = [one for one in advise(events) if one.cause == cause]
    return one


def loop(algorithm: str = "to_one_device") -> list[Event]:
    """More reductions than are kept, so that the share begins with the first one that is."""
    events = beginning(2, "cpu")
    for number in range(STEPS):
        events += [step(number, number * A_STEP), copied(number)]
        events += [reduced(number, call, algorithm=algorithm) for call in range(40)]
    return events


def test_of_a_long_run_the_last_steps_are_named_with_their_share() -> None:
    """Of the reductions 5,000 are kept: those of the last 125 steps."""
    for cause, share in (("many_reductions", 0.4), ("host_transfer", 0.1)):
        one = told(loop(), cause)
        assert one.steps == [STEPS - 124, STEPS - 1]
        assert one.share == pytest.approx(share, rel=0.02)


def test_copies_before_the_named_steps_do_not_count_as_usual() -> None:
    assert told(loop(), "host_transfer").evidence["copy_ms"] == 5.0


def test_a_slow_algorithm_names_its_steps() -> None:
    one = told(loop("hierarchical_copy"), "slow_algorithm")
    assert one.steps == [STEPS - 124, STEPS - 1]
    assert one.evidence["calls"] == 5_000
    assert one.share == pytest.approx(0.4, rel=0.02)


def test_nearly_empty_batches_name_their_steps() -> None:
    events = beginning(2)
    for number in range(40):
        size = 64 if number % 2 else 8
        if number >= 10:
            events.append(
                made(
                    Sharding,
                    time_ns=number * A_STEP - MS,
                    strategy=0,
                    batch=number,
                    bytes=256 * size,
                    wait_ns=0,
                    sizes=[size // 2] * 2,
                    indices=None,
                )
            )
        events.append(step(number, number * A_STEP))
    one = told(events, "nearly_empty_batches")
    assert one.steps == [10, 38]
    assert one.share == pytest.approx(0.5, rel=0.02)


def test_the_values_of_one_call_are_one_call() -> None:
    """The forty values of a dict."""
    together = [
        msgspec.structs.replace(event, call=event.call // 40)
        if isinstance(event, Reduction)
        else event
        for event in loop("hierarchical_copy")
    ]
    one = told(together, "slow_algorithm")
    assert (one.evidence["calls"], one.evidence["call_ms"]) == (125, 20.0)
    assert "hierarchical_copy, 20 ms a call" in one.text


def batch(number: int, after_ms: float) -> Sharding:
    """A batch that takes 5 ms of each 10 ms."""
    return made(
        Sharding,
        time_ns=round((number * 10 + after_ms) * MS),
        strategy=0,
        batch=number,
        sizes=[4, 4],
        nominal=4,
        indices=None,
        wait_ns=5 * MS,
    )


def test_compilation_after_the_first_batch_is_no_loop_time() -> None:
    events: list[Event] = [*beginning(2, "cpu"), batch(0, 0)]
    events += [
        msgspec.structs.replace(
            compiled(2), time_ns=900 * MS, trace_ns=100 * MS, compile_ns=800 * MS
        )
    ]
    for number in range(1, 60):
        events += [batch(number, 900), step(number, round((number * 10 + 901) * MS))]
    one = told(events, "input_bound")
    assert one.share == pytest.approx(0.5, abs=0.01)
