"""Events to record, one of each kind."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from distlab import events
from distlab.events import Event, Placement, Preview, Sharding, Step

E = TypeVar("E", bound=Event)


def run() -> events.Run:
    return events.Run(
        time_ns=0,
        name="a run",
        unix_ns=0,
        process=1,
        host="host",
        platform="cpu",
        devices=[],
        versions={},
    )


def end() -> events.RunEnd:
    return events.RunEnd(time_ns=1 << 40, status="finished")


def step(number: int) -> Step:
    return Step(time_ns=number, step=number, program=1, strategy=2, dispatched_ns=5, examples=64)


def closures(done: int) -> events.Closures:
    return events.Closures(
        time_ns=2,
        strategy=2,
        start_ns=1,
        processes=True,
        workers=1,
        servers=1,
        scheduled=done,
        cancelled=0,
        waiting=0,
        active=[
            events.WorkerClosures(
                worker=0, begun=done, done=done, failed=0, retried=0, busy_ns=1, running=""
            )
        ],
        links=[],
        functions={"step": done},
        spans=[],
        spans_left_out=done,
    )


def placement(array: int, action: str = "place") -> Placement:
    return Placement(
        time_ns=1,
        strategy=2,
        array=array,
        name=f"w{array}",
        action="free" if action == "free" else "place",
        layout="replicated",
        shape=[4, 2],
        dtype="float32",
        devices=["CPU:0", "CPU:1"],
        bytes_per_device=[32, 32],
    )


def sharding(batch: int, indices: bytes | None = None) -> Sharding:
    return Sharding(
        time_ns=7,
        strategy=2,
        dataset=0,
        batch=batch,
        epoch=0,
        sizes=[3, 1],
        nominal=3,
        indices=indices,
        bytes=96,
        wait_ns=10,
        transfer_ns=20,
        policy="rebatch",
    )


def preview(data: bytes) -> Preview:
    return Preview(
        time_ns=7,
        dataset=0,
        batch=None,
        epoch=0,
        indices=b"\0" * 8,
        form="image",
        shape=[1, len(data)],
        data=data,
        labels=["7"],
    )


def strategy() -> events.Strategy:
    return events.Strategy(time_ns=3, strategy=2, name="MirroredStrategy", devices=["CPU:0"])


def compiled() -> events.Compile:
    collective = events.Collective(
        kind="all-reduce",
        operand_bytes=4,
        dtype="f32",
        operands=1,
        participants=2,
        times_per_step=None,
        source="psum at train.py:3",
    )
    return events.Compile(
        time_ns=4,
        program=1,
        strategy=2,
        function="step",
        cause="new function",
        changed="",
        arguments=["x: float32[3]"],
        mode="traced",
        trace_ns=1,
        compile_ns=2,
        collectives=[collective],
        flops=12.0,
    )


def one_of_each() -> list[Event]:
    """One event of each kind that a run may have between its `Run` and its `RunEnd`."""
    return [
        strategy(),
        placement(1),
        sharding(0, b"\1" + b"\0" * 7),
        preview(bytes(range(64))),
        compiled(),
        step(0),
        events.StepReady(time_ns=9, step=0, strategy=2, ready_ns=[8, 9], resolution_ns=1),
        events.Reduction(
            time_ns=9,
            strategy=2,
            verb="reduce",
            op="MEAN",
            algorithm="to_one_device",
            bytes=4,
            dtype="float32",
            participants=2,
            duration_ns=30,
        ),
        events.Copy(
            time_ns=9,
            strategy=2,
            what="argument x of step",
            direction="to_devices",
            bytes=400,
            copies=2,
            duration_ns=50,
        ),
        events.Capture(
            time_ns=40,
            strategy=2,
            start_ns=20,
            steps=3,
            asked_by="user",
            devices=["CPU:0", "CPU:1"],
            compute_ns=[10, 4],
            waiting_ns=[0, 6],
            copy_ns=[0, 1],
            idle_ns=[10, 9],
            spans=[bytes(24), b""],
            spans_left_out=0,
            profile_bytes=1_000,
            cost_ns=2_000,
        ),
        events.Advice(
            time_ns=41,
            cause="slow_replica",
            subject="replica 0",
            text="It is slow.",
            remedy="Make it quick.",
            evidence={"ratio": 2.5},
            steps=[0, 3],
            page="devices",
            share=0.3,
        ),
        events.RecorderCost(
            time_ns=42,
            start_ns=1,
            events=10,
            emit_ns=5,
            sampled=3,
            writer_ns=7,
            watcher_ns=8,
            capture_ns=0,
            waiting=0,
            lost=0,
        ),
        events.Metric(time_ns=10, step=0, values={"loss": 0.5}),
        events.DeviceSample(
            time_ns=11,
            strategy=2,
            start_ns=1,
            busy_ns=[5, 6],
            memory_bytes=None,
            process_memory_bytes=1 << 20,
        ),
        events.Error(time_ns=12, where="run", type="ValueError", message="no"),
        events.Lost(time_ns=13, count=2, reason="why"),
    ]


def made(kind: type[E], **fields: Any) -> E:
    """One event of a kind, with some fields of its own."""
    (one,) = (event for event in one_of_each() if isinstance(event, kind))
    return msgspec.structs.replace(one, **fields)
