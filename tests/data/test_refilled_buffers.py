"""Elements of a function that fills one buffer again and again keep their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.data import Dataset


@pytest.mark.parametrize(
    "made",
    [
        lambda fill: Dataset.range(3).map(fill),
        lambda fill: Dataset.range(3).map(fill, num_parallel_calls=1),
        lambda fill: Dataset.from_generator(lambda: map(fill, range(3))),
    ],
)
def test_a_refilled_buffer_changes_no_element(made: Callable[[Any], Any]) -> None:
    buffer = np.zeros(5000)

    def fill(number: Any) -> np.ndarray:
        buffer[:] = number
        return buffer

    dataset = made(fill)
    assert [row[-1] for row in list(dataset)] == [0, 1, 2]
    assert [row[0] for row in next(iter(dataset.batch(3)))] == [0, 1, 2]


def test_distributed_batches_keep_no_buffer_of_a_function() -> None:
    buffer = np.zeros((4, 1000), np.float32)

    def fill(number: Any) -> np.ndarray:
        buffer[...] = number
        return buffer

    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    batches = list(strategy.experimental_distribute_dataset(Dataset.range(3).map(fill)))
    buffer[...] = 7
    assert [np.asarray(batch.values[1])[1, 999] for batch in batches] == [0, 1, 2]
