"""Steps that wait for their input.

JAX dispatches steps without waiting for them: the time that Python waits for a batch is lost
only when Python is the bottleneck. A loop whose devices are the bottleneck waits in `run`, or
where it reads a result. Input is the bottleneck when it takes a third of the loop's time in
most steps, and at least 2 ms.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Ints

CAUSE: Final = "input_bound"

_SHARE: Final = 0.33
_LEAST_NS: Final = 2_000_000
_FEWEST: Final = 8

_SOURCE: Final = (
    "Make the source faster: map with num_parallel_calls, map whole batches, or read ahead with "
    "prefetch(2)."
)
_PLACING: Final = (
    "Use smaller elements (a smaller dtype, fewer fields), or place them ahead with "
    "InputOptions(experimental_per_replica_buffer_size=2)."
)


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds datasets that steps wait for, in columns of `folds.Evidence`."""
    batches, found = columns["batches"], []
    for dataset in np.unique(batches["dataset"]).tolist():
        rows = np.flatnonzero(batches["dataset"] == dataset)
        advice = _waiting(columns, dataset, rows)
        found += [advice] if advice is not None else []
    return found


def _waiting(columns: EvidenceColumns, dataset: int, rows: Ints) -> Advice | None:
    batches = columns["batches"]
    times = batches["time_ns"][rows]
    # The first batches of epochs count no loop time: programs are compiled then.
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
    stage = "its source" if source else "placing them on the devices"
    steps = columns["steps"]["step"]
    return new_advice(
        CAUSE,
        f"dataset {dataset}",
        f"Steps wait for batches of dataset {dataset}: {percent_text(share)} of the loop's time, "
        f"{ms_text(typical)} a batch, most of it for {stage}.",
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
