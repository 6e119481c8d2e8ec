"""A made-up recording of several processes: that of one process, divided among them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from distlab.events import (
    Capture,
    DeviceSample,
    Envelope,
    Event,
    Metric,
    Placement,
    Run,
    RunEnd,
    Sharding,
    Step,
    StepReady,
    Strategy,
    Unknown,
)
from distlab.events.positions import packed
from tests.synthetic import whole_run


def device_names(workers: int, replicas: int) -> list[str]:
    """The names of all devices, worker by worker."""
    each = replicas // workers
    return [f"worker {n // each} CPU:{n % each}" for n in range(replicas)]


def renamed(events: Sequence[Event | Unknown], workers: int, replicas: int) -> list[Event]:
    """A run of one process whose devices are named like those of several."""
    names = {f"CPU:{n}": name for n, name in enumerate(device_names(workers, replicas))}
    found: list[Event] = []
    for event in events:
        if isinstance(event, Strategy | Placement | Capture):
            found.append(
                msgspec.structs.replace(event, devices=[names[name] for name in event.devices])
            )
        elif isinstance(event, Event):
            found.append(event)
    return found


def divided(events: Sequence[Event], workers: int, replicas: int) -> list[list[Event]]:
    """What each of several processes records of a run that one process recorded.

    Numbers of strategies, datasets, programs and arrays differ from process to process.
    """
    each = replicas // workers
    return [
        [part for event in events if (part := _part(event, worker, workers, each)) is not None]
        for worker in range(workers)
    ]


def _part(event: Event, worker: int, workers: int, each: int) -> Event | None:
    own = slice(worker * each, (worker + 1) * each)
    shifted = {
        name: getattr(event, name) + 10 * worker
        for name in ("strategy", "dataset", "program", "array")
        if hasattr(event, name) and getattr(event, name) >= 0
    }
    event = msgspec.structs.replace(event, **shifted)
    match event:
        case Run():
            return msgspec.structs.replace(
                event,
                process=4_242 + worker,
                host=f"host-{worker}",
                devices=event.devices[own],
                job="worker",
                task=worker,
                process_index=worker,
                processes=workers,
            )
        case Strategy():
            owners = [n // each for n in range(workers * each)]
            return msgspec.structs.replace(event, processes=owners)
        case Placement():
            held = [
                (name, size)
                for name, size in zip(event.devices, event.bytes_per_device, strict=True)
                if name.startswith(f"worker {worker} ")
            ]
            return msgspec.structs.replace(
                event,
                devices=[name for name, _ in held],
                bytes_per_device=[size for _, size in held],
            )
        case Sharding():
            ends = np.cumsum([0, *event.sizes])
            first, last = int(ends[own.start]), int(ends[own.stop])
            whole, positions = max(sum(event.sizes), 1), event.positions
            return msgspec.structs.replace(
                event,
                sizes=event.sizes[own],
                **packed(None if positions is None else positions[first:last]),
                bytes=event.bytes * (last - first) // whole,
            )
        case Step():
            # As equal parts as there are; the first process has what is left over.
            share = event.examples // workers
            return msgspec.structs.replace(
                event, examples=event.examples - share * (workers - 1) if not worker else share
            )
        case StepReady():
            return msgspec.structs.replace(event, ready_ns=event.ready_ns[own])
        case DeviceSample():
            memory = event.process_memory_bytes
            share = memory // workers
            return msgspec.structs.replace(
                event,
                busy_ns=event.busy_ns[own],
                process_memory_bytes=memory - share * (workers - 1) if not worker else share,
            )
        case Capture():
            return msgspec.structs.replace(
                event,
                devices=event.devices[own],
                compute_ns=event.compute_ns[own],
                waiting_ns=event.waiting_ns[own],
                copy_ns=event.copy_ns[own],
                idle_ns=event.idle_ns[own],
                spans=event.spans[own],
                spans_left_out=event.spans_left_out if not worker else 0,
                profile_bytes=event.profile_bytes if not worker else 0,
                cost_ns=event.cost_ns if not worker else 0,
            )
        case Metric() | RunEnd():
            return event
        case _:
            return event


def in_order(parts: Sequence[Sequence[Event]]) -> list[Envelope]:
    """The events of all processes by their times, the first process first."""
    envelopes = [Envelope(worker, event) for worker, part in enumerate(parts) for event in part]
    return sorted(envelopes, key=lambda one: (one.event.time_ns, one.process))


def several(count: int = 60, *, workers: int = 2, replicas: int = 8) -> list[list[Event]]:
    """The recordings of the processes of a finished run of `count` steps."""
    return divided(
        renamed(whole_run(count, replicas=replicas), workers, replicas), workers, replicas
    )
