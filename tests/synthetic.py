"""A made-up recording for tests of folds and charts: digits on eight devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from distlab.events import (
    Chunk,
    Collective,
    Compile,
    Device,
    DeviceSample,
    Event,
    Metric,
    Placement,
    Preview,
    Reduction,
    Run,
    RunEnd,
    Sharding,
    Step,
    StepReady,
    Strategy,
    Unknown,
)

T = TypeVar("T")
START_NS = 1_000_000_000_000
STEP_NS = 10_000_000


class ListSource:
    """A source over a list of events that may still grow."""

    live = True

    def __init__(self, events: list[Event | Unknown]) -> None:
        self.events = events

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        events = self.events[cursor : cursor + limit]
        return Chunk(events, cursor + len(events), 0)


def there(value: T | None) -> T:
    """Returns a value that a test knows to be there, such as a batch of a run with batches."""
    assert value is not None
    return value


def sizes_of(examples: int, batch: int, replicas: int) -> list[int]:
    """How tf.distribute divides `examples` that were left for a batch of `batch`."""
    share = -(-batch // replicas)
    return [max(0, min(share, examples - replica * share)) for replica in range(replicas)]


def beginning(
    replicas: int = 8, total_steps: int | None = None, name: str = "made-up"
) -> list[Event]:
    """What stands before the first step of a run."""
    devices = [f"CPU:{replica}" for replica in range(replicas)]
    return [
        Run(
            time_ns=START_NS,
            name=name,
            unix_ns=1_700_000_000_000_000_000,
            process=4242,
            host="host",
            platform="cpu",
            devices=[
                Device(name=device, kind="cpu", platform="cpu", simulated=True)
                for device in devices
            ],
            versions={"python": "3.11", "jax": "0.10.2"},
            total_steps=total_steps,
        ),
        Strategy(time_ns=START_NS, strategy=0, name="MirroredStrategy", devices=devices),
        placed(0, "dense/kernel", [64, 32], devices),
        placed(1, "dense/bias", [32], devices),
        placed(2, "head/kernel", [32, 10], devices),
        placed(3, "head/bias", [10], devices),
        placed(4, "averages", [10], devices[:1]),
        compiled(replicas),
    ]


def placed(array: int, name: str, shape: list[int], devices: list[str]) -> Placement:
    """A float32 variable on `devices`."""
    return Placement(
        time_ns=START_NS + 1,
        strategy=0,
        array=array,
        name=name,
        action="place",
        layout="replicated" if len(devices) > 1 else "single",
        shape=shape,
        dtype="float32",
        devices=devices,
        bytes_per_device=[4 * int(np.prod(shape))] * len(devices),
    )


def compiled(replicas: int) -> Compile:
    """A program with one combined all-reduce."""
    return Compile(
        time_ns=START_NS + 2,
        program=0,
        strategy=0,
        function="train_step",
        cause="new function",
        changed="",
        arguments=["x: float32[8,64]", "y: int32[8]"],
        mode="traced",
        trace_ns=30_000_000,
        compile_ns=80_000_000,
        collectives=[
            Collective(
                kind="all-reduce",
                operand_bytes=9_640,
                dtype="f32",
                operands=4,
                participants=replicas,
                times_per_step=1,
                source="train.py:31",
            )
        ],
    )


def digit(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """An 8x8 picture that differs for each number."""
    rows, columns = np.mgrid[0:8, 0:8]
    distance = np.hypot(rows - 3.5, columns - 3.5)
    return np.where(np.abs(distance - 1 - number % 10 / 4) < 0.8, 255, 12).astype(np.uint8)


def steps(
    count: int, *, replicas: int = 8, batch: int = 64, source: int = 1_437, first: int = 0
) -> Iterator[Event]:
    """Steps `first` to `first + count` of a run over `source` shuffled examples."""
    devices = replicas
    per_epoch = -(-source // batch)
    for step in range(first, first + count):
        epoch, number = divmod(step, per_epoch)
        now = START_NS + 200_000_000 + step * STEP_NS
        order = np.random.default_rng(epoch).permutation(source)
        taken = order[number * batch : (number + 1) * batch]
        sizes = sizes_of(len(taken), batch, devices)
        if epoch == 0:
            yield Preview(
                time_ns=now,
                dataset=0,
                batch=None,
                epoch=0,
                indices=taken.astype("<i8").tobytes(),
                form="image",
                shape=[8, 8],
                data=b"".join(digit(int(index)).tobytes() for index in taken),
                labels=[str(index % 10) for index in taken],
            )
        yield Sharding(
            time_ns=now + 1_000,
            strategy=0,
            dataset=0,
            batch=number,
            epoch=epoch,
            sizes=sizes,
            nominal=-(-batch // replicas),
            indices=taken.astype("<i8").tobytes(),
            bytes=len(taken) * 260,
            wait_ns=40_000 + 1_000 * (step % 7),
            transfer_ns=60_000,
            policy="rebatch",
        )
        yield Step(
            time_ns=now + 200_000,
            step=step,
            program=0,
            strategy=0,
            dispatched_ns=now + 300_000,
            examples=len(taken),
        )
        yield Reduction(
            time_ns=now + 400_000,
            strategy=0,
            verb="reduce",
            op="MEAN",
            algorithm="to_one_device",
            bytes=4,
            dtype="float32",
            participants=replicas,
            duration_ns=50_000,
        )
        loss = 2.3 * float(np.exp(-step / 120)) + 0.05 * float(np.sin(step * 1.7)) + 0.08
        yield Metric(time_ns=now + 500_000, step=step, values={"loss": loss})
        if step % 5 == 4:
            ready = [now + 4_000_000 + 100_000 * replica for replica in range(replicas)]
            yield StepReady(
                time_ns=now + 6_000_000, step=step, strategy=0, ready_ns=ready, resolution_ns=20_000
            )
            shares = 0.55 + 0.3 * np.sin(step / 40 + np.arange(replicas))
            yield DeviceSample(
                time_ns=now + 6_000_001,
                strategy=0,
                start_ns=now + 6_000_001 - 5 * STEP_NS,
                busy_ns=[int(share * 5 * STEP_NS) for share in shares],
                memory_bytes=None,
                process_memory_bytes=400_000_000 + step * 10_000,
            )


def ending(steps_taken: int) -> RunEnd:
    """The end of a run that took so many steps."""
    return RunEnd(time_ns=START_NS + 300_000_000 + steps_taken * STEP_NS, status="finished")


def whole_run(count: int = 200, *, replicas: int = 8) -> list[Event | Unknown]:
    """A finished run of `count` steps."""
    return [
        *beginning(replicas, total_steps=count),
        *steps(count, replicas=replicas),
        ending(count),
    ]
