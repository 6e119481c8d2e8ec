"""Steps that wait for their input.

JAX hands steps over without waiting for them, so time that Python spends on
waiting for a batch is lost only when nothing else keeps it: a loop whose devices
are the bottleneck waits in `run`, or where it reads a result. So input is the
bottleneck when a third of the loop's time goes into it, in most steps, and it is
no matter of microseconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice._finding import advice, ms, percent
from distlab.events import Advice
from distlab.folds import EvidenceColumns

CAUSE: Final = "input_bound"

_SHARE: Final = 0.33
_LEAST_NS: Final = 2_000_000
_FEWEST: Final = 8

_SOURCE: Final = (
    "Make the source faster: map with num_parallel_calls, work on whole batches, or read ahead "
    "with prefetch(2)."
)
_PLACING: Final = (
    "Give smaller elements (a smaller dtype, fewer fields), or place them ahead with "
    "InputOptions(experimental_per_replica_buffer_size=2)."
)


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds datasets that steps wait for; columns as `folds.Evidence` has them."""
    batches, found = columns["batches"], []
    for dataset in np.unique(batches["dataset"]).tolist():
        rows = np.flatnonzero(batches["dataset"] == dataset)
        one = _of(columns, dataset, rows)
        found += [one] if one is not None else []
    return found


def _of(columns: EvidenceColumns, dataset: int, rows: np.ndarray) -> Advice | None:
    batches = columns["batches"]
    times = batches["time_ns"][rows]
    # Compilations and the beginnings of epochs are no part of the loop: neither is the first.
    same = np.flatnonzero(np.diff(batches["epoch"][rows]) == 0) + 1
    if len(same) < _FEWEST:
        return None
    waited, placing = batches["wait_ns"][rows][same], batches["transfer_ns"][rows][same]
    periods = np.maximum(np.diff(times)[same - 1], 1)
    shares = (waited + placing) / periods
    share, typical = float(np.median(shares)), float(np.median(waited + placing))
    if share < _SHARE or typical < _LEAST_NS:
        return None
    source = float(np.median(waited)) >= float(np.median(placing))
    stage = "its source" if source else "putting them on the devices"
    steps = columns["steps"]["step"]
    return advice(
        CAUSE,
        f"dataset {dataset}",
        f"Steps wait for batches of dataset {dataset}: {percent(share)} of the loop's time, "
        f"{ms(typical)} a batch, mostly for {stage}.",
        _SOURCE if source else _PLACING,
        evidence={
            "share": share,
            "source_ms": float(np.median(waited)) / 1e6,
            "placing_ms": float(np.median(placing)) / 1e6,
            "loop_ms": float(np.median(periods)) / 1e6,
            "batches": len(same),
        },
        page="batches",
        share=share,
        steps=steps,
    )
