"""The events of several processes show what one process with all replicas would have shown."""

from __future__ import annotations

import itertools
from typing import Any, Final

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.events import (
    Capture,
    ClockOffset,
    CopiesCompared,
    Envelope,
    Error,
    Event,
    Metric,
    Preview,
    Run,
    RunEnd,
    Sharding,
    Step,
    StepReady,
    Strategy,
)
from distlab.folds import FoldName, Folds, Join
from tests.folds.test_chunking import same
from tests.recording import samples
from tests.recording.samples import made
from tests.several_workers import divided, in_order, renamed, several
from tests.synthetic import START_NS, STEP_NS, there, whole_run

STEPS = 30
SAME_IN_ANY_ORDER: Final[tuple[FoldName, ...]] = (
    *("metrics", "placement", "programs", "reductions", "loops", "captures"),
)
SAME: Final[tuple[FoldName, ...]] = (*SAME_IN_ANY_ORDER, "steps", "devices", "timeline")


def folded(envelopes: list[Envelope], at_once: int = 10_000) -> Folds:
    folds = Folds()
    for begin in range(0, len(envelopes), at_once):
        part = envelopes[begin : begin + at_once]
        folds.add([one.event for one in part], [one.process for one in part])
    return folds


def profile(first_step: int = 12) -> Capture:
    spans = np.array([[0, 1_000_000, 0], [1_000_000, 500_000, 1]], "<i8").tobytes()
    return made(
        Capture,
        time_ns=START_NS + 500_000_000,
        strategy=0,
        start_ns=START_NS + 490_000_000,
        asked_by="recorder",
        devices=[f"CPU:{n}" for n in range(8)],
        compute_ns=[1_000_000 + n for n in range(8)],
        waiting_ns=[500_000] * 8,
        copy_ns=[0] * 8,
        idle_ns=[8_500_000 - n for n in range(8)],
        spans=[spans] * 8,
        first_step=first_step,
    )


def interleaved(parts: list[list[Event]], turns: list[int], ahead: int) -> list[Envelope]:
    """The events of all processes, each in its order, none far ahead of another."""
    taken = [0] * len(parts)
    envelopes: list[Envelope] = []
    wanted = itertools.cycle(turns)
    while any(at < len(part) for at, part in zip(taken, parts, strict=True)):
        worker = next(wanted) % len(parts)
        behind = min(range(len(parts)), key=taken.__getitem__)
        if taken[worker] - taken[behind] > ahead or taken[worker] == len(parts[worker]):
            worker = behind
        envelopes.append(Envelope(worker, parts[worker][taken[worker]]))
        taken[worker] += 1
    return envelopes


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(
    workers=st.sampled_from([2, 4, 8]),
    at_once=st.integers(1, 400),
    turns=st.lists(st.integers(0, 7), min_size=1, max_size=30),
)
def test_run_divided_among_processes_has_columns_of_whole_run(
    workers: int, at_once: int, turns: list[int]
) -> None:
    *begun, end = whole_run(STEPS)
    whole = renamed([*begun, profile(), end], workers, 8)
    parts = divided(whole, workers, 8)
    first = [Envelope(worker, part[0]) for worker, part in enumerate(parts)]
    envelopes = first + interleaved([part[1:] for part in parts], turns, ahead=40)
    one, many = folded([Envelope(0, event) for event in whole]), folded(envelopes, at_once)
    for name in SAME_IN_ANY_ORDER:
        assert same(one.columns(name), many.columns(name)), name
    for number in (0, 7, STEPS - 1):
        assert same(there(one.batch(number)), there(many.batch(number)))
    steps, expected = many.columns("steps"), one.columns("steps")
    assert (steps["steps"], steps["examples"]) == (STEPS, expected["examples"])
    assert many.columns("header")["status"] == "finished"
    assert many.columns("header")["replicas"] == one.columns("header")["replicas"]


def test_processes_on_one_clock_have_all_columns() -> None:
    workers = 4
    whole = renamed(whole_run(STEPS), workers, 8)
    one = folded([Envelope(0, event) for event in whole])
    many = folded(in_order(divided(whole, workers, 8)))
    for name in SAME:
        assert same(one.columns(name), many.columns(name)), name


def test_a_step_that_one_process_watched_has_its_replicas_alone() -> None:
    first, second = several(10)
    second = [event for event in second if not isinstance(event, StepReady)]
    timeline = folded(in_order([first, second])).columns("timeline")
    ready = timeline["ready_s"][list(timeline["step"]).index(9)]
    assert not np.isnan(ready[:4]).any()
    assert np.isnan(ready[4:]).all()


def test_capture_waits_for_processes_of_the_same_step() -> None:
    events = renamed([*whole_run(5)[:-1], profile(3), profile(9)], 2, 8)
    first, second = divided(events, 2, 8)
    second = [e for e in second if not isinstance(e, Capture) or e.first_step == 9]
    join = Join()
    captures = [e for e in join.add(in_order([first, second])) if isinstance(e, Capture)]
    assert [(e.first_step, len(e.devices)) for e in captures] == [(3, 4), (9, 8)]
    assert captures[1].devices[4] == "worker 1 CPU:0"


def test_a_process_that_ended_is_waited_for_no_more() -> None:
    first, second = several(20)
    cut = [e for e in second if e.time_ns < START_NS + 200_000_000 + 10 * STEP_NS]
    cut.append(RunEnd(time_ns=cut[-1].time_ns, status="failed", message="ValueError: no"))
    folds = folded(in_order([first, cut]))
    assert folds.columns("batches")["count"] == 20
    assert there(folds.batch(19))["size"][4:] == [0, 0, 0, 0]
    assert folds.columns("steps")["steps"] == 20
    header = folds.columns("header")
    assert (header["status"], header["message"]) == ("failed", "worker 1: ValueError: no")


def test_examples_without_positions_are_previewed_in_place() -> None:
    def batch(worker: int, sizes: list[int]) -> list[Event]:
        at = START_NS + 10
        return [
            made(
                Sharding,
                time_ns=at,
                strategy=10 * worker,
                dataset=10 * worker,
                sizes=sizes,
                nominal=2,
                indices=None,
                wait_ns=worker,
            ),
            made(
                Preview,
                time_ns=at + 1,
                dataset=10 * worker,
                batch=0,
                indices=np.arange(sum(sizes), dtype="<i8").tobytes(),
                form="numbers",
                shape=[1],
                data=np.full(sum(sizes), worker, "<f4").tobytes(),
                labels=[f"of {worker}"] * sum(sizes),
            ),
        ]

    parts = [
        [*part[:2], *batch(worker, sizes)]
        for worker, (part, sizes) in enumerate(
            zip(several(1, replicas=4), ([2, 2], [2, 1]), strict=True)
        )
    ]
    detail = there(folded(in_order(parts)).batch())
    assert detail["size"] == [2, 2, 2, 1]
    assert detail["label"] == ["of 0"] * 4 + ["of 1"] * 3
    assert detail["known"].all()
    assert detail["wait_ms"] == 1e-6


def test_a_metric_is_that_of_the_first_process_that_logs_it() -> None:
    first, second = ([e for e in part if not isinstance(e, Metric)] for part in several(5))

    def logged(name: str, value: float, step: int) -> Metric:
        return Metric(time_ns=START_NS + step, step=step, values={name: value})

    first += [logged("loss", 1.0, step) for step in range(1, 4)]
    second += [logged("loss", 9.0, step) for step in range(4)]
    second += [logged("own", float(step), step) for step in range(20)]
    metrics = folded(in_order([first, second])).columns("metrics")
    values = dict(zip(metrics["name"], metrics["value"], strict=True))
    assert set(values["loss"]) == {1.0}
    assert values["own"].tolist() == [float(step) for step in range(20)]


def test_errors_name_their_worker() -> None:
    parts = several(2)
    parts[1].insert(3, Error(time_ns=START_NS + 5, where="run", type="ValueError", message="no"))
    assert folded(in_order(parts)).columns("header")["errors"] == ["worker 1: run: ValueError: no"]


def test_copies_are_compared_once_for_all_processes() -> None:
    parts = several(3)
    for worker, part in enumerate(parts):
        part.insert(
            -1,
            CopiesCompared(
                time_ns=START_NS + 300_000_000, step=2, strategy=10 * worker, program=10 * worker,
                subject="w", differing=[1], largest=0.5,
            ),
        )  # fmt: skip
    (found,) = (e for e in Join().add(in_order(parts)) if isinstance(e, CopiesCompared))
    assert (found.strategy, found.program) == (0, 0)


def test_strategies_of_a_process_alone_keep_their_own_devices() -> None:
    parts = [
        [
            e if not hasattr(e, "processes") or isinstance(e, Run) else msgspec.structs.replace(
                e, processes=[], devices=["CPU:0", "CPU:1"]
            )
            for e in part
        ]
        for part in several(10, replicas=4)
    ]  # fmt: skip
    folds = folded(in_order(parts))
    assert folds.columns("steps")["steps"] == 20
    devices = folds.columns("devices")["device"]
    assert devices in (
        ["worker 0 CPU:0", "worker 0 CPU:1"],
        ["worker 1 CPU:0", "worker 1 CPU:1"],
    )


def test_the_processes_are_listed_with_what_each_did() -> None:
    first, second = several(40)
    late = [
        msgspec.structs.replace(e, awaited_ns=3_000_000) if isinstance(e, Step) else e
        for e in second[:-20]
    ]
    late.append(made(StepReady, step=0, time_ns=late[-1].time_ns, ready_ns=[]))  # no device
    workers = folded(in_order([first, late])).columns("workers")
    assert workers["name"] == ["worker 0", "worker 1"]
    assert workers["task"] == ["worker:0", "worker:1"]
    assert workers["host"] == ["host-0", "host-1"]
    assert workers["status"] == ["finished", ""]
    assert workers["steps"][0] == 40
    assert workers["last_step"][1] < 39
    assert workers["devices"][1] == [f"worker 1 CPU:{n}" for n in range(4)]
    assert workers["own_ms"] == pytest.approx([9.9, 9.9 - 3])
    assert sum(workers["examples"]) > 0


def test_of_a_clock_the_newest_comparison_is_listed() -> None:
    first, second = several(5)
    second[-1:-1] = [
        ClockOffset(time_ns=second[-1].time_ns, offset_ns=offset_ns, error_ns=200_000)
        for offset_ns in (4_000_000, 3_000_000)
    ]
    workers = folded(in_order([first, second])).columns("workers")
    assert workers["offset_ms"] == [0.0, 3.0]
    assert workers["error_ms"] == [0.0, 0.2]


def test_a_process_that_recorded_nothing_is_listed() -> None:
    first, _ = several(5)
    workers = folded([Envelope(0, event) for event in first]).columns("workers")
    assert workers["recorded"] == [True, False]
    assert workers["last_step"] == [4, -1]
    assert folded([Envelope(0, e) for e in first]).columns("steps")["steps"] == 5
    a_ready: Any = next(e for e in first if isinstance(e, StepReady))
    assert len(a_ready.ready_ns) == 4


def test_a_batch_on_a_mesh_of_two_processes_is_one_batch() -> None:
    envelopes = []
    for process in range(2):
        run = msgspec.structs.replace(samples.run(), process_index=process, processes=2)
        mesh = made(
            Strategy,
            strategy=0,
            name="Mesh(data=4)",
            devices=[f"worker {n // 2} CPU:{n % 2}" for n in range(4)],
            processes=[0, 0, 1, 1],
            form="mesh",
            axes={"data": 4},
        )
        batch = made(
            Sharding, strategy=0, batch=0, epoch=0, sizes=[], nominal=2, indices=None,
            mesh={"data": 4}, spec=[["data"]], shape=[8],
        )  # fmt: skip
        envelopes += [Envelope(process, event) for event in (run, mesh, batch)]
    folds = folded(envelopes)
    assert folds.columns("batches")["examples"].tolist() == [8]
    assert there(folds.batch())["replica"] == ["data 0", "data 1", "data 2", "data 3"]
