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

from typing import Final, NamedTuple

import numpy as np

from distlab.advice._columns import batches_by_dataset
from distlab.advice._shares import steps_between
from distlab.advice._texts import new_advice, percent_text
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Flags, Ints

CAUSE: Final = "nearly_empty_batches"

_SMALL: Final = 0.25
_FEWEST_SMALL: Final = 4
_FEWEST_EXAMPLES: Final = 8
_OF_BATCHES: Final = 0.25
_OF_BATCHES_AT_ENDS: Final = 0.4
_OF_TIME: Final = 0.15
_IN_A_ROW: Final = 2.0


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds datasets with nearly empty batches, in columns of `folds.Evidence`."""
    found = [_emptiness(columns, name, rows) for name, rows in batches_by_dataset(columns)]
    return [advice for advice in found if advice is not None]


def _emptiness(columns: EvidenceColumns, name: str, rows: Ints) -> Advice | None:
    batches = columns["batches"]
    examples = np.array([sum(batches["sizes"][row]) for row in rows])
    size = batches["bytes"][rows]
    if len(rows) < 2 * _FEWEST_SMALL or examples.max() < _FEWEST_EXAMPLES:
        return None
    small = (examples <= _SMALL * examples.max()) & (size <= _SMALL * size.max())
    number = int(small.sum())
    if number < _FEWEST_SMALL or number > _IN_A_ROW * _groups(small):
        return None
    at_ends = bool(_ends_of_epochs(columns, rows)[small].all())
    if number < (_OF_BATCHES_AT_ENDS if at_ends else _OF_BATCHES) * len(rows):
        return None
    typical = _typical_periods(columns, rows, small)
    spent = number * typical.of_small
    whole = number * (typical.of_small + typical.wait) + (len(rows) - number) * typical.of_full
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


def _groups(small: Flags) -> int:
    """Returns how many groups of neighbours there are."""
    return int(small[0]) + int((np.diff(small.astype(int)) == 1).sum())


def _ends_of_epochs(columns: EvidenceColumns, rows: Ints) -> Flags:
    """Returns which batches are the last of their epoch; of the newest one that is not known."""
    batches = columns["batches"]
    epochs = batches["epoch"][rows], batches["dataset"][rows]
    last = (np.diff(epochs[0]) != 0) | (np.diff(epochs[1]) != 0)
    return np.append(last, True)


class _Typical(NamedTuple):
    """Usual nanoseconds."""

    of_small: float  # From a small batch until the next one is asked for
    wait: float  # The wait for that one: it would come without the small batch, too
    of_full: float  # From a full batch to the next one


def _typical_periods(columns: EvidenceColumns, rows: Ints, small: Flags) -> _Typical:
    """Returns what the batches usually take.

    What follows the last batch of an epoch, such as an evaluation, is not its own: its step takes
    no longer than that of a full batch.
    """
    batches = columns["batches"]
    periods = np.diff(batches["time_ns"][rows]).astype(np.float64)
    ends, small = _ends_of_epochs(columns, rows)[:-1], small[:-1]
    within = periods[~small & ~ends] if (~small & ~ends).any() else periods[~small]
    full = float(np.median(within))
    whole = np.where(ends, np.minimum(periods, full), periods)[small]
    waits = np.where(ends, 0, np.minimum(batches["wait_ns"][rows][1:], periods))[small]
    return _Typical(float(np.median(whole - waits)), float(np.median(waits)), full)
