"""Advice on runs of several processes names the worker that the others wait for."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import msgspec
import pytest

import distlab as dl
from distlab.advice import Advice, advise
from distlab.events import Chunk, Event, Sharding, Step, StepReady
from tests.patience import measured, only
from tests.recorded_by_workers import launch
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


def finished_later(event: Event, by_ns: int) -> Event:
    if not isinstance(event, StepReady):
        return event
    return msgspec.structs.replace(event, ready_ns=[one + by_ns for one in event.ready_ns])


def waiting(events: list[Event], wait_ns: int) -> list[Event]:
    return [
        msgspec.structs.replace(e, wait_ns=wait_ns) if isinstance(e, Sharding) else e
        for e in events
    ]


def reading(events: list[Event], awaited_ns: int) -> list[Event]:
    """A process that waits for results between its steps."""
    return [
        msgspec.structs.replace(e, awaited_ns=awaited_ns) if isinstance(e, Step) else e
        for e in events
    ]


def one_slow(workers: int = 2, count: int = 60) -> list[list[Event]]:
    """Steps of 10 ms; worker 1 takes all of them, the others wait for 8 ms."""
    parts = [reading(part, 8_000_000) for part in several(count, workers=workers)]
    parts[1] = [finished_later(event, -5_500_000) for event in reading(parts[1], 0)]
    return parts


def test_equal_workers_have_no_advice_whatever_their_phase() -> None:
    parts = several(60, workers=4)
    assert found(parts) == []
    parts[1] = later(parts[1], 8_000_000)
    assert found(parts) == []


def test_a_worker_whose_own_program_takes_longer_is_named() -> None:
    (advice,) = found(one_slow(workers=4))
    assert (advice.cause, advice.subject, advice.page) == ("slow_worker", "worker 1", "workers")
    assert advice.share == pytest.approx(0.8)
    assert advice.saves_s == pytest.approx(0.008)
    assert advice.text == (
        "Worker 1 takes 9.9 ms of its own between two steps, the others 1.9 ms or less, and they "
        "wait for it. A step takes 10 ms."
    )


def test_a_worker_that_waits_for_batches_is_named_with_its_input() -> None:
    parts = one_slow()
    parts[1] = waiting(parts[1], int(0.8 * STEP_NS))
    (advice,) = found(parts)
    assert (advice.cause, advice.subject) == ("slow_worker_input", "worker 1")
    assert advice.text.endswith(
        "It waits for its batches 80 % of the time, 8 ms each, and the others 0 %."
    )


def test_own_time_is_no_loss_while_the_devices_still_compute() -> None:
    parts = one_slow()
    assert found([[finished_later(event, 20_000_000) for event in part] for part in parts]) == []


def test_without_watched_steps_no_loss_is_known() -> None:
    parts = one_slow()
    assert found([[e for e in part if not isinstance(e, StepReady)] for part in parts]) == []


def test_input_that_all_workers_wait_for_is_that_of_no_worker() -> None:
    parts = [waiting(part, int(0.8 * STEP_NS)) for part in several(60)]
    assert found(parts) == []


def test_a_few_steps_are_no_evidence() -> None:
    assert found(one_slow(count=10)) == []


PROGRAM = """
import json, sys, time

import jax.numpy as jnp

import distlab as dl
from distlab.processes import group

strategy = dl.MultiWorkerMirroredStrategy(devices_per_worker=1)
me = group.current().index


def step(number):
    table = jnp.tanh(jnp.full((64, 64), number) @ jnp.ones((64, 64)))
    return dl.get_replica_context().all_reduce("SUM", table.mean())


def loop(*asleep, reads):
    begun = time.perf_counter()
    for number in range(40):
        time.sleep(asleep[me])
        total = strategy.run(step, args=(float(number),))
        if reads:
            float(strategy.experimental_local_results(total)[0])
    return (time.perf_counter() - begun) / 40


loop(0, 0, reads=True)  # compiles
without = loop(0.02, 0.02, reads=True)
with dl.record(f"{sys.argv[1]}/one"):
    slept = loop(0.02, 0.05, reads=True)
with dl.record(f"{sys.argv[1]}/both"):
    time.sleep(0.015 * me)  # out of phase
    loop(0.02, 0.02, reads=False)
if me:
    json.dump(1 - without / slept, open(f"{sys.argv[1]}/share", "w"))
"""


@measured
def test_the_share_is_the_cost_of_the_workers_sleep(tmp_path: Path) -> None:
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    launch(place / "program.py", PROGRAM, str(place), devices=1)
    with dl.Run.open(place / "one") as run:
        advice = only([one for one in run.advice() if one.cause == "slow_worker"])
    assert advice.subject == "worker 1"
    share = json.loads((place / "share").read_text())
    assert advice.share == pytest.approx(share, rel=0.15)
    with dl.Run.open(place / "both") as run:
        assert [one.cause for one in run.advice()] == ["host_bound"]
