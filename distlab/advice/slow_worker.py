"""The worker that the others wait for.

All workers take every step together, and those that are done earlier wait for the last one, in a
collective or, running ahead, in their next call. When each calls a step says nothing: workers may
be any number of steps apart. So each is looked at by its own clock: the time that its program takes
between two steps, without what waits for devices. A worker is slow when this is longer than that of
the others by a quarter of a step; what the devices compute meanwhile is no loss. A worker whose
devices compute 1.4 times as long as those of the others in the profiles is slow, too.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice import stragglers
from distlab.advice._shares import step_seconds
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice, Capture
from distlab.folds import EvidenceColumns, WorkerColumns
from distlab.folds.arrays import Floats

CAUSE: Final = "slow_worker"
INPUT: Final = "slow_worker_input"

_LEAST_STEPS: Final = 20
_LEAST_SHARE: Final = 0.25
"""The share of a step that the worker's own time exceeds that of the others."""

_REMEDY: Final = (
    "Find what else its program or machine does, such as work of the chief or other "
    "programs: all others wait for it in every step."
)
_INPUT_REMEDY: Final = (
    "Make its source as fast as that of the others: check where its files are and what else "
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
    return _own_time(columns, workers) or _computing(columns, workers)


def _own_time(columns: EvidenceColumns, workers: WorkerColumns) -> list[Advice]:
    """Finds a worker whose program takes longer than that of the others."""
    own, waits = np.array(workers["own_ms"]), np.array(workers["wait_share"])
    if np.isnan(own).sum() > len(own) - 2 or min(n for n in workers["steps"] if n) < _LEAST_STEPS:
        return []
    slow = int(np.nanargmax(own))
    others = float(np.nanmax(np.delete(own, slow)))
    step_ms = workers["step_ms"][slow]
    usual = step_seconds(columns)
    # Its devices wait for no other worker's, so what they take in their fastest steps is their own.
    busy_ms = [workers["device_ms"][slow], step_ms * usual[1] / usual[0] if usual else np.nan]
    if np.isnan(busy_ms).all():
        return []
    lost = min(float(own[slow]) - others, step_ms - float(np.nanmax(busy_ms)))
    if lost < _LEAST_SHARE * step_ms:
        return []
    name, wait = workers["name"][slow], float(waits[slow])
    rest = np.delete(waits, slow)
    typical = float(np.nanmedian(rest)) if not np.isnan(rest).all() else 0.0
    is_input = wait - typical >= _LEAST_SHARE
    text = (
        f"{name.capitalize()} takes {ms_text(1e6 * own[slow])} of its own between two steps, the "
        f"others {ms_text(1e6 * others)} or less, and they wait for it. A step takes "
        f"{ms_text(1e6 * step_ms)}."
    )
    if is_input:
        text += (
            f" It waits for its batches {percent_text(wait)} of the time, "
            f"{ms_text(1e6 * workers['wait_ms'][slow])} each, and the others "
            f"{percent_text(typical)}."
        )
    return [
        new_advice(
            INPUT if is_input else CAUSE,
            name,
            text,
            _INPUT_REMEDY if is_input else _REMEDY,
            evidence={"own_ms": float(own[slow]), "others_own_ms": others, "step_ms": step_ms}
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
