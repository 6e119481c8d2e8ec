"""Steps that wait for their input.

JAX dispatches steps without waiting for them: the time that Python waits for a batch is lost
only when Python is the bottleneck. A loop whose devices are the bottleneck waits in `run`, or
where it reads a result. Input is the bottleneck when it takes a third of the loop's time, and
2 ms a batch. One long wait, as for a shuffle buffer that fills, is none: the longest does not
count.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice._columns import batches_by_dataset
from distlab.advice._shares import periods_between, saved_at_most, steps_between
from distlab.advice._texts import ms_text, new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Ints

CAUSE: Final = "input_bound"

_SHARE: Final = 0.33
_LEAST_NS: Final = 2_000_000
_FEWEST: Final = 8

_SOURCE: Final = "its source"
_PLACING: Final = "placing them on the devices"
_COPYING: Final = "reading and copying their elements"
_REMEDIES: Final = {
    _SOURCE: "Make the source faster: map whole batches instead of single examples, map with "
    "num_parallel_calls, or cache() what is the same in each epoch.",
    _PLACING: "Use smaller elements: a smaller dtype, or fewer fields.",
    _COPYING: "Use smaller elements: a smaller dtype, or fewer fields. Elements of cache() are "
    "not copied again.",
}
_COPYING_BYTES_A_NS: Final = 2.0
"""A source that gives so many bytes in a nanosecond does little but copy them."""


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds datasets that steps wait for, in columns of `folds.Evidence`."""
    found = [_waiting(columns, name, rows) for name, rows in batches_by_dataset(columns)]
    return [advice for advice in found if advice is not None]


def _waiting(columns: EvidenceColumns, name: str, rows: Ints) -> Advice | None:
    batches = columns["batches"]
    # The first batches of epochs count no loop time: programs are compiled then.
    one_epoch = (np.diff(batches["epoch"][rows]) == 0) & (np.diff(batches["dataset"][rows]) == 0)
    same = np.flatnonzero(one_epoch) + 1
    if len(same) < _FEWEST:
        return None
    waited, placing = batches["wait_ns"][rows][same], batches["transfer_ns"][rows][same]
    periods = np.maximum(periods_between(columns, batches["time_ns"][rows])[same - 1], 1)
    spent = waited + placing
    longest = int(spent.argmax())
    share = float(np.delete(spent, longest).sum() / np.delete(periods, longest).sum())
    if share < _SHARE or float(np.delete(spent, longest).mean()) < _LEAST_NS:
        return None
    whole_share = min(float(spent.sum() / periods.sum()), 1.0)
    begin = int(batches["time_ns"][rows[same[0] - 1]])
    rate = float(batches["bytes"][rows].mean()) / max(float(waited.mean()), 1.0)
    stage = _COPYING if rate >= _COPYING_BYTES_A_NS else _SOURCE
    stage = _PLACING if waited.sum() < placing.sum() else stage
    return new_advice(
        CAUSE,
        name,
        f"Steps wait for batches of the {name}: {percent_text(whole_share)} of the loop's time, "
        f"{ms_text(float(spent.mean()))} a batch, most of it for {stage}.",
        _REMEDIES[stage],
        evidence={
            "share": whole_share,
            "source_ms": float(waited.mean()) / 1e6,
            "placing_ms": float(placing.mean()) / 1e6,
            "loop_ms": float(periods.mean()) / 1e6,
            "longest_ms": float(spent.max()) / 1e6,
            "batches": len(same),
        },
        page="batches",
        share=whole_share,
        steps=steps_between(columns, begin, int(batches["time_ns"][rows[same[-1]]])),
        source=batches["source"][rows[-1]],
        saves_s=saved_at_most(columns, float(spent.mean()) / 1e9),
    )
