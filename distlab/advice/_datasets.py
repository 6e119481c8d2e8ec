"""The batches of each dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from distlab.folds import EvidenceColumns
from distlab.folds.arrays import Ints


def batches_by_dataset(columns: EvidenceColumns) -> Iterator[tuple[str, Ints]]:
    """Yields each dataset's name and the rows of its batches.

    Datasets that one line of the program distributes, such as a new one in each epoch, are one.
    """
    batches = columns["batches"]
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, (number, source) in enumerate(
        zip(batches["dataset"].tolist(), batches["source"], strict=True)
    ):
        rows_of[f"dataset at {source}" if source else f"dataset {number}"].append(row)
    for name, rows in rows_of.items():
        yield name, np.array(rows)
