"""Batches that hold next to nothing.

A step costs some time however few examples it has. Where a dataset is batched part by part
(each file, each class), or an epoch is little longer than a batch, every second batch may be
the small rest of the one before. A small batch has a quarter of the fullest one's examples and
bytes: batches of few long sequences are full. It must be a quarter of the batches and a seventh
of the time, between full ones: batches that grow in the course of the training are meant so. Where
the small ones are the ends of epochs, two fifths of the batches must be: a partial last batch is
ordinary.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from distlab.advice._columns import batches_by_dataset
from distlab.advice._shares import steps_between
from distlab.advice._texts import new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Flags, Ints

CAUSE: Final = "nearly_empty_batches"

_QUARTER: Final = 0.25
_OF_BATCHES_AT_ENDS: Final = 0.4
_OF_TIME: Final = 0.15
_FEWEST: Final = 4


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds datasets with nearly empty batches, in columns of `folds.Evidence`."""
    found = [_emptiness(columns, name, rows) for name, rows in batches_by_dataset(columns)]
    return [advice for advice in found if advice is not None]


def _emptiness(columns: EvidenceColumns, name: str, rows: Ints) -> Advice | None:
    batches = columns["batches"]
    examples = np.array([sum(batches["sizes"][row]) for row in rows])
    size = batches["bytes"][rows]
    small = (examples <= _QUARTER * examples.max()) & (size <= _QUARTER * size.max())
    number = int(small.sum())
    groups = int(small[0]) + int((np.diff(small.astype(int)) == 1).sum())
    if number < _FEWEST or number > 2 * groups:
        return None
    ends = _ends_of_epochs(columns, rows)
    at_ends = bool(ends[small].all())
    if number < (_OF_BATCHES_AT_ENDS if at_ends else _QUARTER) * len(rows):
        return None
    spent, whole = _spent_and_whole(columns, rows, small, ends)
    share = spent / max(whole, 1.0)
    if share < _OF_TIME:
        return None
    usual = round(float(np.median(examples[small])))
    full = round(float(np.median(examples[~small])))
    remedy = (
        f"Use batch(..., drop_remainder=True), or a batch size that divides the epoch's examples: "
        f"one of {full} leaves {usual}."
        if at_ends
        else f"Batch once, after the parts are joined: dataset.unbatch().batch({full}), or "
        "flat_map and interleave on examples instead of batches."
    )
    return new_advice(
        CAUSE,
        name,
        f"{number} of {len(rows)} batches of the {name} are nearly empty: {usual} examples in "
        f"place of {full}. Their steps take {percent_text(share)} of the loop's time.",
        remedy,
        evidence={
            "nearly_empty_batches": number,
            "batches": len(rows),
            "examples": usual,
            "examples_of_others": full,
            "share": share,
        },
        page="batches",
        share=share,
        steps=steps_between(columns, *batches["time_ns"][rows[[0, -1]]].tolist()),
        source=batches["source"][rows[-1]],
        saves_s=spent / 1e9 / len(rows),
    )


def _ends_of_epochs(columns: EvidenceColumns, rows: Ints) -> Flags:
    """Returns which batches are the last of their epoch; of the newest one that is not known."""
    batches = columns["batches"]
    epochs = batches["epoch"][rows], batches["dataset"][rows]
    last = (np.diff(epochs[0]) != 0) | (np.diff(epochs[1]) != 0)
    return np.append(last, True)


def _spent_and_whole(
    columns: EvidenceColumns, rows: Ints, small: Flags, ends: Flags
) -> tuple[float, float]:
    """Returns the nanoseconds of small batches, and those of all.

    What follows the last batch of an epoch, such as an evaluation, is not its own: its step takes
    no longer than that of a full batch. The wait for the next batch is not its own either.
    """
    batches = columns["batches"]
    periods = np.diff(batches["time_ns"][rows]).astype(np.float64)
    number, ends, small = int(small.sum()), ends[:-1], small[:-1]
    full = float(np.median(periods[~small]))
    periods = np.where(ends, np.minimum(periods, full), periods)
    waits = np.where(ends, 0, np.minimum(batches["wait_ns"][rows][1:], periods))
    spent = number * float(np.median((periods - waits)[small]))
    waited = number * float(np.median(waits[small]))
    return spent, spent + waited + (len(rows) - number) * full
