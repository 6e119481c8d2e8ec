"""Datasets of the Hugging Face library, the real one, as input."""

from __future__ import annotations

import datasets
import numpy as np
import pytest

import distlab as dl


@pytest.fixture
def rows() -> datasets.Dataset:
    numbers = np.arange(10, dtype=np.float32)
    columns = {"x": numbers.tolist(), "label": list(range(10)), "text": list("abcdefghij")}
    return datasets.Dataset.from_dict(columns)


def test_rows_are_batched_and_divided(rows: datasets.Dataset) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    batches = dl.data.as_dataset(rows.remove_columns("text")).batch(4)
    steps = [
        [part["x"].tolist() for part in strategy.experimental_local_results(batch)]
        for batch in strategy.experimental_distribute_dataset(batches)
    ]
    assert steps == [[[0, 1], [2, 3], []], [[4, 5], [6, 7], []], [[8], [9], []]]


def test_batches_of_the_library_are_taken_as_they_are(rows: datasets.Dataset) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    batches = rows.remove_columns("text").with_format("numpy").batch(6)
    totals = [
        float(strategy.reduce("SUM", batch["x"], axis=0))
        for batch in strategy.experimental_distribute_dataset(batches)
    ]
    assert totals == [15.0, 30.0]
