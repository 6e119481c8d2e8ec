"""Events of one kind as a table: arrays and lists by the names of the events' fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

import numpy as np

from distlab.events import Copy, RecorderCost, Reduction, Sharding, Step, StepReady
from distlab.folds.arrays import Ints

_LARGEST: Final = (1 << 63) - 1


class StepTable(TypedDict):
    """`Step` events: their fields."""

    time_ns: Ints
    step: Ints
    program: Ints
    strategy: Ints
    dispatched_ns: Ints
    examples: Ints


class ReadyTable(TypedDict):
    """`StepReady` events: their fields."""

    step: Ints
    strategy: Ints
    ready_ns: list[list[int]]
    resolution_ns: Ints


class ShardingTable(TypedDict):
    """`Sharding` events: their fields."""

    time_ns: Ints
    strategy: Ints
    dataset: Ints
    batch: Ints
    epoch: Ints
    bytes: Ints
    wait_ns: Ints
    transfer_ns: Ints
    sizes: list[list[int]]
    indices: list[bytes | None]
    repeated: Ints
    policy: list[str]
    source: list[str]


class ReductionTable(TypedDict):
    """`Reduction` events: their fields."""

    time_ns: Ints
    strategy: Ints
    bytes: Ints
    duration_ns: Ints
    array: Ints
    call: Ints
    verb: list[str]
    op: list[str]
    algorithm: list[str]
    source: list[str]


class CopyTable(TypedDict):
    """`Copy` events: their fields."""

    time_ns: Ints
    strategy: Ints
    bytes: Ints
    duration_ns: Ints
    waiting_ns: Ints
    what: list[str]
    direction: list[str]
    source: list[str]


class CostTable(TypedDict):
    """`RecorderCost` events: their fields."""

    time_ns: Ints
    start_ns: Ints
    events: Ints
    emit_ns: Ints
    log_ns: Ints
    log_source: list[str]
    writer_ns: Ints
    watcher_ns: Ints
    capture_ns: Ints


def step_table(events: Sequence[Step]) -> StepTable:
    """Returns the table of `Step` events."""
    return {
        "time_ns": _ints([event.time_ns for event in events]),
        "step": _ints([event.step for event in events]),
        "program": _ints([event.program for event in events]),
        "strategy": _ints([event.strategy for event in events]),
        "dispatched_ns": _ints([event.dispatched_ns for event in events]),
        "examples": _ints([event.examples for event in events]),
    }


def ready_table(events: Sequence[StepReady]) -> ReadyTable:
    """Returns the table of `StepReady` events."""
    return {
        "step": _ints([event.step for event in events]),
        "strategy": _ints([event.strategy for event in events]),
        "ready_ns": [event.ready_ns for event in events],
        "resolution_ns": _ints([event.resolution_ns for event in events]),
    }


def sharding_table(events: Sequence[Sharding]) -> ShardingTable:
    """Returns the table of `Sharding` events."""
    return {
        "time_ns": _ints([event.time_ns for event in events]),
        "strategy": _ints([event.strategy for event in events]),
        "dataset": _ints([event.dataset for event in events]),
        "batch": _ints([event.batch for event in events]),
        "epoch": _ints([event.epoch for event in events]),
        "bytes": _ints([event.bytes for event in events]),
        "wait_ns": _ints([event.wait_ns for event in events]),
        "transfer_ns": _ints([event.transfer_ns for event in events]),
        "sizes": [event.sizes for event in events],
        "indices": [event.indices for event in events],
        "repeated": _ints([event.repeated for event in events]),
        "policy": [event.policy for event in events],
        "source": [event.source for event in events],
    }


def reduction_table(events: Sequence[Reduction]) -> ReductionTable:
    """Returns the table of `Reduction` events."""
    return {
        "time_ns": _ints([event.time_ns for event in events]),
        "strategy": _ints([event.strategy for event in events]),
        "bytes": _ints([event.bytes for event in events]),
        "duration_ns": _ints([event.duration_ns for event in events]),
        "array": _ints([event.array for event in events]),
        "call": _ints([event.call for event in events]),
        "verb": [event.verb for event in events],
        "op": [event.op for event in events],
        "algorithm": [event.algorithm for event in events],
        "source": [event.source for event in events],
    }


def copy_table(events: Sequence[Copy]) -> CopyTable:
    """Returns the table of `Copy` events."""
    return {
        "time_ns": _ints([event.time_ns for event in events]),
        "strategy": _ints([event.strategy for event in events]),
        "bytes": _ints([event.bytes for event in events]),
        "duration_ns": _ints([event.duration_ns for event in events]),
        "waiting_ns": _ints([event.waiting_ns for event in events]),
        "what": [event.what for event in events],
        "direction": [event.direction for event in events],
        "source": [event.source for event in events],
    }


def cost_table(events: Sequence[RecorderCost]) -> CostTable:
    """Returns the table of `RecorderCost` events."""
    return {
        "time_ns": _ints([event.time_ns for event in events]),
        "start_ns": _ints([event.start_ns for event in events]),
        "events": _ints([event.events for event in events]),
        "emit_ns": _ints([event.emit_ns for event in events]),
        "log_ns": _ints([event.log_ns for event in events]),
        "log_source": [event.log_source for event in events],
        "writer_ns": _ints([event.writer_ns for event in events]),
        "watcher_ns": _ints([event.watcher_ns for event in events]),
        "capture_ns": _ints([event.capture_ns for event in events]),
    }


def _ints(numbers: list[int]) -> Ints:
    try:
        return np.array(numbers, np.int64)
    except OverflowError:  # a damaged file can hold any number
        return np.array([min(number, _LARGEST) for number in numbers], np.int64)
