"""Findings that need other machines, or exact numbers, from made-up events."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import distlab as dl
from distlab.advice import advise, evidence_text
from distlab.errors import ArgumentTypeError
from distlab.events import (
    Advice,
    Capture,
    Device,
    DeviceSample,
    Event,
    Loop,
    Lost,
    OwnPython,
    Placement,
    RecorderCost,
    Reduction,
    Run,
    Sharding,
    Step,
    StepReady,
    Strategy,
)
from distlab.recording import RingRecorder
from tests.recording import samples
from tests.recording.samples import made

MS = 1_000_000
SECOND = 1_000 * MS


def beginning(replicas: int, platform: str = "gpu") -> list[Event]:
    names = [f"{platform.upper()}:{n}" for n in range(replicas)]
    return [
        Run(
            time_ns=0,
            name="made-up",
            unix_ns=0,
            process=1,
            host="host",
            platform=platform,
            devices=[
                Device(name=n, kind=platform, platform=platform, simulated=platform == "cpu")
                for n in names
            ],
            versions={},
        ),
        Strategy(time_ns=1, strategy=0, name="MirroredStrategy", devices=names),
    ]


def step(number: int, time_ns: int) -> Step:
    return Step(
        time_ns=time_ns,
        step=number,
        program=0,
        strategy=0,
        dispatched_ns=time_ns + MS // 10,
        examples=8,
    )


def causes(events: list[Event]) -> list[tuple[str, str]]:
    return [(one.cause, one.subject) for one in advise(events)]


def sample(memory: list[int], time_ns: int) -> DeviceSample:
    return made(DeviceSample, time_ns=time_ns, strategy=0, memory_bytes=memory)


@pytest.mark.parametrize(("full", "found"), [(10, True), (5, False)])
def test_a_gpu_that_holds_twice_as_much_as_the_others_is_named(full: int, found: bool) -> None:
    memory = [3 << 30] * 4
    memory[2] = full << 30
    events = [*beginning(4), sample(memory, SECOND)]
    assert causes(events) == ([("memory_imbalance", "GPU:2")] if found else [])


def test_a_server_that_holds_a_large_variable_whole_is_named() -> None:
    sizes = {"CPU:2": 48_000_000, "CPU:3": 30_720, "CPU:4": 512}
    placed: list[Event] = [
        made(
            Placement,
            time_ns=number,
            strategy=0,
            array=number,
            layout="single",
            devices=[device],
            bytes_per_device=[size],
            server=number,
        )
        for number, (device, size) in enumerate(sizes.items())
    ]
    (one,) = advise([*beginning(2), *placed])
    assert (one.cause, one.subject) == ("memory_imbalance", "CPU:2")
    assert "MinSizePartitioner(max_shards=3)" in one.remedy
    assert advise([*beginning(2), *placed[1:]]) == []


def ready(number: int, called_ns: int, lengths_ms: list[float]) -> StepReady:
    times = [called_ns + round(length * MS) for length in lengths_ms]
    return StepReady(
        time_ns=max(times), step=number, strategy=0, ready_ns=times, resolution_ns=MS // 10
    )


def stepped(lengths: list[list[float]], every_ms: int = 50) -> list[Event]:
    events = beginning(len(lengths[0]))
    for number, row in enumerate(lengths):
        called = number * every_ms * MS
        events += [step(number, called), ready(number, called, row)]
    return events


def test_a_gpu_last_in_every_step_is_named_without_a_profile() -> None:
    compiled = msgspec.structs.replace(samples.compiled(), program=0, source="train.py:7")
    (one,) = advise([*stepped([[10, 11, 10, 30 + n % 3] for n in range(20)]), compiled])
    assert (one.cause, one.subject, one.source) == ("slow_replica", "replica 3", "train.py:7")
    assert one.evidence["late_ms"] == pytest.approx(20, abs=1)
    assert one.steps == [0, 19]


def test_gpus_that_are_last_in_turns_or_by_little_are_not() -> None:
    in_turns = [[10.0 + 20 * (n % 4 == replica) for replica in range(4)] for n in range(40)]
    assert causes(stepped(in_turns)) == []
    by_little = [[10.0, 10.5, 10.2, 12.0] for _ in range(40)]
    assert causes(stepped(by_little, every_ms=20)) == []


SEEN = OwnPython(time_ns=SECOND, start_ns=0, stacks={"a.py:9 > a.py:5": SECOND}, calls=[])


def test_a_loop_with_idle_devices_is_named_with_its_own_time() -> None:
    assert advise(stepped([[5.0, 5.0]] * 30)) == []  # a library's loop: no line is the program's
    (one,) = advise([*stepped([[5.0, 5.0]] * 30), SEEN])
    assert (one.cause, one.subject) == ("host_bound", "loop")
    assert one.evidence == pytest.approx(
        {"share": 1 - 0.1 / 50, "step_ms": 49.9, "in_flight_share": 5 / 50, "line_share": 1},
        abs=0.01,
    )


@pytest.mark.parametrize(
    ("stacks", "source"),
    [
        ({"a.py:9 > a.py:5": 900, "a.py:9 > a.py:6": 100}, "a.py:5"),
        ({"a.py:9 > a.py:5 > b.py:2": 800, "a.py:9 > a.py:5 > b.py:3": 100}, "b.py:2"),
        ({f"a.py:9 > a.py:5 > b.py:{line}": 300 for line in (2, 3, 4)}, "a.py:5"),
        ({"a.py:9 > a.py:5 > jax compiles": 900, "a.py:9 > a.py:6": 100}, "a.py:5"),
        ({"a.py:9 > a.py:5": 300, "a.py:9 > a.py:6": 300, "a.py:9 > a.py:7": 300}, ""),
        ({"a.py:9 > a.py:4": 900}, ""),
        ({"a.py:9 > a.py:5": 9}, ""),
    ],
)
def test_the_line_that_takes_half_of_the_loops_own_time_is_named(
    stacks: dict[str, int], source: str
) -> None:
    own = OwnPython(
        time_ns=SECOND,
        start_ns=0,
        stacks={stack: spent * MS for stack, spent in stacks.items()},
        calls=["a.py:9 > a.py:4"],
    )
    (one,) = advise([*stepped([[5.0, 5.0]] * 30), own])
    assert (one.cause, one.source) == ("host_bound", source)
    assert ("jax.jit once" in one.remedy) == any("jax compiles" in stack for stack in stacks)


def test_one_long_pause_of_a_loop_is_no_rule() -> None:
    events = stepped([[8.0, 8.0]] * 60, every_ms=10)
    later = [
        *(step(60 + n, 3 * SECOND + n * 10 * MS) for n in range(60)),
        *(ready(60 + n, 3 * SECOND + n * 10 * MS, [8.0, 8.0]) for n in range(60)),
    ]
    assert causes([*events, *later]) == []


def test_savings_in_each_step_order_the_advice() -> None:
    """Steps of 50 ms: the loop's own Python takes all but 0.1 ms, three reductions 9 ms."""
    events = [*stepped([[5.0, 5.0]] * 30), SEEN]
    for number in range(30):
        begun = number * 50 * MS
        events += [reduction(begun + (1 + 4 * place) * MS, 4 * MS) for place in range(3)]
    first, second = advise(events)
    assert (first.cause, second.cause) == ("host_bound", "large_reduction")
    assert first.saves_s == pytest.approx(0.0379, rel=0.05)
    assert second.saves_s == pytest.approx(0.012, rel=0.05)
    assert "saves up to 12 ms a step" in evidence_text(second)


def test_time_in_which_a_loop_was_paused_is_not_its_own() -> None:
    events = stepped([[5.0, 5.0]] * 30)
    paused = Loop(time_ns=700 * MS, loop=0, name="loop", state="paused", position=14)
    resumed = Loop(time_ns=1_400 * MS, loop=0, name="loop", state="running", position=14)
    events += [paused, resumed]
    assert causes(events) == []


def reduction(time_ns: int, duration_ns: int) -> Reduction:
    return made(
        Reduction,
        time_ns=time_ns,
        strategy=0,
        op="SUM",
        bytes=2 << 20,
        duration_ns=duration_ns,
        array=time_ns,
        call=time_ns,
    )


def test_a_call_that_compiles_is_no_part_of_the_loop() -> None:
    """5 of 10 ms of each step are reductions, of which the first one takes 300 ms."""
    events = beginning(2)
    called = 0
    for number in range(30):
        took = 300 * MS if number == 1 else 5 * MS
        events += [step(number, called), ready(number, called, [6.0, 6.0])]
        events += [reduction(called + MS, took)]
        called += 5 * MS + took
    (one,) = [one for one in advise(events) if one.cause == "large_reduction"]
    assert one.evidence["share"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("strategy", "named"), [("MirroredStrategy", True), ("MultiWorkerMirroredStrategy", False)]
)
def test_an_algorithm_is_named_where_the_user_may_choose_another(
    strategy: str, *, named: bool
) -> None:
    run, made = beginning(2, "cpu")
    events: list[Event] = [run, msgspec.structs.replace(made, name=strategy)]
    for number in range(30):
        called = number * 10 * MS
        reduced = msgspec.structs.replace(
            reduction(called + MS, 3 * MS), algorithm="all_reduce", bytes=64
        )
        events += [step(number, called), reduced]
    assert ("slow_algorithm" in [cause for cause, _ in causes(events)]) == named


def capture(compute: list[int], length: int = 100 * MS) -> Capture:
    """A profile in which each replica computes evenly, so that each third looks the same."""
    packed = []
    for share in compute:
        rows = [(begin, share * length // 1000, 0) for begin in range(0, length, length // 10)]
        packed.append(np.array(rows, "<i8").tobytes())
    busy = [10 * (share * length // 1000) for share in compute]
    waiting = [length - one for one in busy]
    return made(
        Capture,
        time_ns=SECOND + length,
        strategy=0,
        start_ns=SECOND,
        steps=5,
        devices=[f"GPU:{n}" for n in range(len(compute))],
        compute_ns=busy,
        waiting_ns=waiting,
        spans=packed,
    )


def profiled(works: list[tuple[list[int], int]]) -> list[Event]:
    """Profiles one after another, each of the work of a step and the whole steps in it."""
    found = [
        msgspec.structs.replace(
            one,
            start_ns=one.start_ns + n * SECOND,
            time_ns=one.time_ns + n * SECOND,
            work_ns=work,
            work_steps=steps,
        )
        for n, (work, steps) in enumerate(works)
        for one in [capture([51] * len(works[0][0]))]
    ]
    return [*beginning(len(works[0][0])), *found]


DOUBLE = [1_000, 1_000, 2_000, 1_000]
EQUAL = [1_000, 1_000, 1_010, 1_000]


@pytest.mark.parametrize(
    ("works", "named"),
    [
        ([(DOUBLE, 4)], "replica 2"),
        ([(DOUBLE, 3)], ""),  # the reason may be the examples of few steps
        ([([100, 2_000], 1)], "replica 1"),
        ([(DOUBLE, 2), (DOUBLE, 2)], "replica 2"),
        ([(EQUAL, 9), (EQUAL, 9), (DOUBLE, 2), (DOUBLE, 2)], "replica 2"),  # from some step on
        ([(DOUBLE, 9), (EQUAL, 9)], ""),  # it had
        ([(DOUBLE, 2), ([], 0), (DOUBLE, 2), ([], 0)], "replica 2"),  # no whole steps were seen
        ([([1_000, 2_000, 1_000, 1_000], 3), (DOUBLE, 3)], ""),  # another one
        ([([1_000, 1_000, 1_350, 1_000], 9)] * 3, ""),  # by little
        ([([80, 12, 85, 10, 11, 13, 9, 10], 9)], "replicas 0 and 2"),
        ([([80, 80, 80, 10], 9)], ""),
    ],
)
def test_a_replica_with_more_work_is_named_despite_equal_times(
    works: list[tuple[list[int], int]], named: str
) -> None:
    found = advise(profiled(works))
    assert [(one.cause, one.subject) for one in found] == [("slow_replica", named)] * bool(named)
    if named == "replica 2":
        assert (
            "has 2.0 times the work of the others in each step: it computed 51 %" in found[0].text
        )
        assert found[0].evidence["ratio"] == 2.0
        assert found[0].share == pytest.approx(0.51 / 2)  # half of what it computes


def test_more_work_that_takes_little_of_the_time_is_no_cause() -> None:
    one = msgspec.structs.replace(capture([18, 18, 19, 18]), work_ns=DOUBLE, work_steps=9)
    assert causes([*beginning(4), one]) == []


@pytest.mark.parametrize(
    ("compute", "waiting", "steps", "named"),
    [
        ([10, 10, 90, 10], [80, 80, 0, 80], 9, True),
        ([10, 10, 90, 10], [0, 0, 0, 0], 9, False),  # the sums of reduce, and nobody waits
        ([18, 19, 60, 18], [60, 60, 60, 60], 9, False),
        ([40, 40, 55, 40], [15, 15, 0, 15], 9, False),
        ([20, 20, 40, 20], [20, 20, 0, 20], 3, False),
    ],
)
def test_a_replica_is_slow_if_others_wait_while_it_computes(
    compute: list[int], waiting: list[int], steps: int, *, named: bool
) -> None:
    one = capture(compute)
    whole = (one.time_ns - one.start_ns) // 100
    waits = msgspec.structs.replace(one, waiting_ns=[n * whole for n in waiting], steps=steps)
    assert causes([*beginning(4), waits]) == ([("slow_replica", "replica 2")] if named else [])


def uneven_batches() -> list[Event]:
    """Six batches with nine examples for one replica and one for the other."""
    return [
        made(
            Sharding,
            time_ns=number * 50 * MS,
            strategy=0,
            batch=number,
            sizes=[9, 1],
            nominal=9,
            indices=None,
            policy="per_replica",
        )
        for number in range(6)
    ]


def test_calls_of_a_program_for_each_size_are_named() -> None:
    """Steps of 50 ms, of which the call takes 20 ms."""
    steps = [
        msgspec.structs.replace(one, dispatched_ns=one.time_ns + 20 * MS) if one.step else one
        for one in (step(number, number * 50 * MS) for number in range(20))
    ]
    ragged = msgspec.structs.replace(samples.compiled(), program=0, strategy=0, mode="ragged")
    events = [*beginning(2), ragged, *steps, *uneven_batches()]
    (one,) = [one for one in advise(events) if one.cause == "uneven_batch"]
    assert one.text.endswith("their calls take 39 % of the loop's time, 20 ms each.")


def test_a_replica_with_more_examples_is_uneven_and_not_slow() -> None:
    events = [*beginning(2), capture([90, 10]), *uneven_batches()]
    (one,) = advise(events)
    assert (one.cause, one.subject) == ("uneven_batch", "replica 1")
    assert one.evidence["wasted_share"] == pytest.approx(48 / 108)
    assert "drop_remainder" in one.remedy


def cost(number: int, emits: float, logs: float) -> RecorderCost:
    return made(
        RecorderCost,
        time_ns=(number + 1) * SECOND,
        start_ns=number * SECOND,
        events=10_000,
        emit_ns=round(emits * SECOND),
        log_ns=round(logs * SECOND),
    )


@pytest.mark.parametrize(
    ("emits", "logs", "found"), [(0.0, 0.08, True), (0.0, 0.04, False), (0.3, 0.04, False)]
)
def test_calls_of_log_alone_are_advised_on(emits: float, logs: float, *, found: bool) -> None:
    events = [*beginning(2), *(cost(n, emits, logs) for n in range(4))]
    assert causes(events) == ([("recording_cost", "recorder")] if found else [])


def test_lost_events_are_said() -> None:
    events = [*beginning(2), Lost(time_ns=5, count=123, reason="full")]
    (one,) = advise(events)
    assert (one.cause, one.subject) == ("recording_cost", "lost events")
    assert "123 events" in one.text


def test_an_empty_run_gets_no_advice_and_nonsense_is_refused() -> None:
    assert advise([]) == []
    assert advise(beginning(8)) == []
    with pytest.raises(ArgumentTypeError, match="a run or its events, got int"):
        advise(3)  # type: ignore[arg-type]


def test_a_recording_stores_the_advice_that_its_run_gives(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    rows = np.zeros((30, 3), np.float32)
    dataset = dl.data.Dataset.from_tensor_slices(rows).batch(3)
    with dl.record(tmp_path / "run"):
        for x in strategy.experimental_distribute_dataset(dataset):
            strategy.run(lambda v: v.sum(), (x,))
    with dl.Run.open(tmp_path / "run") as run:
        stored = [e for e in run.events("advice") if isinstance(e, Advice)]
        again = run.advice()
    assert [(e.cause, e.subject, e.evidence) for e in stored] == [
        (e.cause, e.subject, e.evidence) for e in again
    ]
    assert ("uneven_batch", "replica 1") in [(e.cause, e.subject) for e in stored]


@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize(("every", "when"), [(1, "in each step"), (4, "after 8 of 30 steps")])
def test_small_values_combined_once_an_epoch_are_named_as_that(
    every: int, when: str, lasting: bool
) -> None:
    events: list[Event] = [*beginning(2, "cpu")]
    for number in range(30):
        called = number * 10 * MS
        events.append(step(number, called))
        if number % every == 0:
            events += [
                msgspec.structs.replace(
                    reduction(called + n * MS, MS),
                    bytes=64,
                    call=100 * number + n,
                    array=n if lasting else 100 * number + n,  # the same arrays in each step
                )
                for n in range(1, 6)
            ]
    (one,) = [one for one in advise(events) if one.cause == "many_reductions"]
    assert one.text.startswith(f"5 small values are combined one by one {when}; that takes ")
