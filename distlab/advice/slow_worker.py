"""The worker that the others wait for.

All workers take every step together. One that reads its batches slowly, or whose program does
something between the steps that the others' do not, calls each step later than the others, which
wait for it in the step's first collective. Workers run ahead of their devices by some steps, and a
late call costs nothing while its devices still compute. So what counts is the time from when all
devices have finished a step until the worker calls the next one, without what may be an error of
the clocks, in a quarter of each step. A worker whose devices compute 1.4 times as long as those of
the others in the profiles is slow, too, though it calls its steps in time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice import stragglers
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice, Capture
from distlab.folds import EvidenceColumns, WorkerColumns
from distlab.folds.arrays import Floats

CAUSE: Final = "slow_worker"
INPUT: Final = "slow_worker_input"

_LEAST_STEPS: Final = 20
_LEAST_IDLE: Final = 0.25
"""The share of a step in which finished devices wait for the worker's call, or for its batches."""

_REMEDY: Final = (
    "Find what its program or its machine does besides, such as work of the chief alone or other "
    "programs: all others wait for it in every step."
)
_INPUT_REMEDY: Final = (
    "Make its source as fast as that of the others: look at where its files lie and at what else "
    "reads from there, or prefetch more batches."
)
_COMPUTE_REMEDY: Final = (
    "Look at its machine: other programs, fewer cores or slower devices. All others wait for it "
    "in every step."
)


def find(columns: EvidenceColumns, workers: WorkerColumns) -> list[Advice]:
    """Finds a worker that the others wait for."""
    if len(workers["name"]) < 2:
        return []
    return _late(columns, workers) or _computing(columns, workers)


def _late(columns: EvidenceColumns, workers: WorkerColumns) -> list[Advice]:
    """Finds a worker for whose calls the devices wait."""
    late, idle = np.array(workers["late_ms"]), np.array(workers["idle_ms"])
    if np.isnan(idle).all() or min(n for n in workers["steps"] if n) < _LEAST_STEPS:
        return []
    slow = int(np.nanargmax(late))
    others = [number for number in range(len(late)) if number != slow]
    step_ms = workers["step_ms"][slow]
    error_ms = max(workers["error_ms"])
    behind = float(late[slow] - np.nanmax(late[others])) - error_ms
    lost = float(idle[slow] - np.nanmax(idle[others])) - error_ms
    if not min(behind, lost) >= _LEAST_IDLE * step_ms:  # NaN where it is not known
        return []
    name, waits = workers["name"][slow], np.array(workers["wait_share"])
    evidence = {"late_ms": behind, "step_ms": step_ms, "idle_ms": lost}
    typical = float(np.nanmedian(waits[others])) if not np.isnan(waits[others]).all() else 0.0
    wait = float(waits[slow])
    is_input = wait - typical >= _LEAST_IDLE
    called = (
        f"calls each step {ms_text(1e6 * behind)} after the other workers. A step takes "
        f"{ms_text(1e6 * step_ms)}, of which all devices wait {ms_text(1e6 * lost)} for its call."
    )
    waited = (
        f"{name.capitalize()} waits for its batches {percent_text(wait)} of the time between them, "
        f"{ms_text(1e6 * workers['wait_ms'][slow])} each, and the others {percent_text(typical)}"
    )
    return [
        new_advice(
            INPUT if is_input else CAUSE,
            name,
            f"{waited}: it {called}" if is_input else f"{name.capitalize()} {called}",
            _INPUT_REMEDY if is_input else _REMEDY,
            evidence=evidence
            | ({"wait_share": wait, "others_wait_share": typical} if is_input else {}),
            page="workers",
            share=lost / step_ms,
            saves_s=lost / 1e3,
            steps=columns["steps"]["step"],
        )
    ]


def _computing(columns: EvidenceColumns, workers: WorkerColumns) -> list[Advice]:
    """Finds a worker whose devices compute longer than those of the others, in the profiles."""
    devices = [name for owned in workers["devices"] for name in owned]
    captures = [one for one in columns["captures"] if one.devices == devices]
    if not captures or not all(workers["devices"]):
        return []
    compute = _mean_compute(captures, workers["devices"])
    whole = sum(one.time_ns - one.start_ns for one in captures)
    few, ratio = stragglers.far_above(compute)
    slow = int(compute.argmax())
    others = float(compute[slow]) / ratio
    excess = float(compute[slow]) - others
    if few != [slow] or excess < stragglers.LEAST_SHARE * whole:
        return []
    name = workers["name"][slow]
    return [
        new_advice(
            CAUSE,
            name,
            f"The devices of {name} computed {percent_text(compute[slow] / whole)} of the profiled "
            f"time, {ratio:.1f} times as long as those of the others.",
            _COMPUTE_REMEDY,
            evidence={
                "compute_ms": float(compute[slow]) / 1e6,
                "others_compute_ms": others / 1e6,
                "profiled_ms": whole / 1e6,
            },
            page="devices",
            share=excess / whole,
            time_ns=captures[-1].time_ns,
        )
    ]


def _mean_compute(captures: list[Capture], devices: list[list[str]]) -> Floats:
    """Returns nanoseconds that the devices of each worker computed, on average."""
    each: Floats = np.sum([capture.compute_ns for capture in captures], axis=0, dtype=float)
    ends = np.cumsum([len(owned) for owned in devices])
    return np.array([part.mean() for part in np.split(each, ends[:-1])])
