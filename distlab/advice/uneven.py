"""Replicas that receive fewer examples than the others, or none.

A step lasts as long as its fullest replica, and the time of the others is wasted. The last
batch of an epoch alone is harmless, a tenth of all work is not.

Parts of different sizes also take a program for each size instead of one. What calls of those take
is known; what they would take otherwise is not.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice._columns import batches_by_dataset
from distlab.advice._shares import spent_in
from distlab.advice._texts import ms_text, new_advice, percent_text, replicas_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Ints

CAUSE: Final = "uneven_batch"

_LEAST_SHARE: Final = 0.1
_LEAST_SHARE_OF_ALL: Final = 0.03
"""Of the capacity for all datasets: a small one for evaluation costs next to nothing."""

_FEWEST: Final = 3


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds datasets that are divided unevenly, in columns of `folds.Evidence`."""
    found = [
        _unevenness(columns, name, rows, [columns["batches"]["sizes"][row] for row in rows])
        for name, rows in batches_by_dataset(columns)
    ]
    return [advice for advice in found if advice is not None]


def _capacity(sizes: list[list[int]]) -> int:
    """Returns how many examples the replicas could have received in the time of the fullest."""
    return sum(max(size, default=0) * len(size) for size in sizes)


def _unevenness(
    columns: EvidenceColumns, name: str, rows: Ints, sizes: list[list[int]]
) -> Advice | None:
    examples = np.array([size for size in sizes if len(size) == len(sizes[-1])])
    if examples.ndim != 2 or examples.shape[1] < 2:
        return None
    fullest = examples.max(axis=1)
    uneven = examples.min(axis=1) < fullest
    capacity = int(fullest.sum()) * examples.shape[1]
    wasted = capacity - int(examples.sum())
    if not capacity or wasted < _LEAST_SHARE * capacity or uneven.sum() < _FEWEST:
        return None
    if wasted < _LEAST_SHARE_OF_ALL * _capacity(columns["batches"]["sizes"]):
        return None
    short = np.flatnonzero((examples < fullest[:, None])[uneven].mean(axis=0) > 0.5).tolist()
    empty = np.flatnonzero((examples == 0)[uneven].mean(axis=0) > 0.5).tolist()
    short = short or np.flatnonzero((examples < fullest[:, None]).any(axis=0)).tolist()
    number = examples.shape[1]
    usual = int(np.median(examples[uneven].sum(axis=1)))
    per_replica = columns["batches"]["policy"][rows[-1]] == "per_replica"
    down, up = usual // number * number, -(-usual // number) * number
    fitting = f"{down} or {up}" if down and down != up else str(up)
    names = replicas_text(empty or short)
    what = "nothing" if empty else "fewer examples"
    share = wasted / capacity
    calls = _calls_text(columns, int(columns["batches"]["strategy"][rows[-1]]))
    remedy = (
        "Use batches of one size, batch(..., drop_remainder=True), and as many for each replica."
        if per_replica
        else f"Use a batch size that {number} replicas divide: {fitting} instead of {usual}."
    )
    return new_advice(
        CAUSE,
        names,
        f"{names.capitalize()} received {what} in {int(uneven.sum())} of {len(examples)} batches "
        f"of the {name}; {percent_text(share)} of the replicas' capacity is wasted.{calls}",
        remedy,
        evidence={
            "wasted_share": share,
            "wasted_examples": wasted,
            "uneven_batches": int(uneven.sum()),
            "batches": len(examples),
            "examples_in_a_batch": usual,
            "fitting_batch_size": up,
        },
        page="batches",
        share=share,
        source=columns["batches"]["source"][rows[-1]],
    )


def _calls_text(columns: EvidenceColumns, strategy: int) -> str:
    """Returns a sentence about the calls that run a program for each size; empty without any."""
    steps = columns["steps"]
    ragged = [one.program for one in columns["compiles"] if one.mode == "ragged"]
    own = np.isin(steps["program"], ragged) & (steps["strategy"] == strategy)
    if not own.any():
        return ""
    taken = (steps["dispatched_ns"] - steps["time_ns"])[own]
    share = spent_in(columns, steps["time_ns"][own], taken).share
    return (
        " Steps of such batches run a program for each size instead of one: their calls take "
        f"{percent_text(share)} of the loop's time, {ms_text(float(np.median(taken)))} each."
    )
