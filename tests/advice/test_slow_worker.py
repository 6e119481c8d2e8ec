"""Advice on runs of several processes names the worker that the others wait for."""

from __future__ import annotations

import msgspec
import pytest

from distlab.advice import Advice, advise
from distlab.events import Chunk, Event, Sharding, Step
from tests.several_workers import in_order, several
from tests.synthetic import STEP_NS


class Recorded:
    """A source over the events of several processes."""

    def __init__(self, parts: list[list[Event]]) -> None:
        self.envelopes = in_order(parts)

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        part = self.envelopes[cursor : cursor + limit]
        processes = tuple(one.process for one in part) or (0,)
        return Chunk([one.event for one in part], cursor + len(part), 0, processes)


def found(parts: list[list[Event]]) -> list[Advice]:
    return [one for one in advise(Recorded(parts)) if one.cause.startswith("slow_worker")]


def later(events: list[Event], by_ns: int) -> list[Event]:
    """A process that calls each step later."""
    return [
        msgspec.structs.replace(e, time_ns=e.time_ns + by_ns, dispatched_ns=e.dispatched_ns + by_ns)
        if isinstance(e, Step)
        else e
        for e in events
    ]


def waiting(events: list[Event], wait_ns: int) -> list[Event]:
    return [
        msgspec.structs.replace(e, wait_ns=wait_ns) if isinstance(e, Sharding) else e
        for e in events
    ]


def test_workers_in_step_have_no_advice() -> None:
    assert found(several(60)) == []
    assert found(several(60, workers=4)) == []


@pytest.mark.parametrize("workers", [2, 4])
def test_a_worker_that_calls_its_steps_late_is_named(workers: int) -> None:
    parts = several(60, workers=workers)
    parts[1] = later(parts[1], 8_000_000)
    (advice,) = found(parts)
    assert (advice.cause, advice.subject, advice.page) == ("slow_worker", "worker 1", "workers")
    assert advice.text == (
        "Worker 1 calls each step 8 ms after the other workers; a step takes 10 ms."
    )


def test_a_worker_that_waits_for_its_batches_is_named_with_its_input() -> None:
    parts = several(60)
    parts[1] = waiting(later(parts[1], 6_000_000), int(0.8 * STEP_NS))
    (advice,) = found(parts)
    assert (advice.cause, advice.subject) == ("slow_worker_input", "worker 1")
    assert advice.text == (
        "Worker 1 waits for its batches 80% of the time between them, 8 ms each, and the others 0%"
        ": it calls each step 6 ms after them."
    )


def test_input_that_all_workers_wait_for_is_that_of_no_worker() -> None:
    parts = [waiting(part, int(0.8 * STEP_NS)) for part in several(60)]
    assert found(parts) == []


def test_a_few_steps_are_no_evidence() -> None:
    parts = several(10)
    parts[1] = later(parts[1], 8_000_000)
    assert found(parts) == []
